// The same program by nvcc, which reads it in both worlds.
#include "main.cpp"
