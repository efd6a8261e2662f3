// attention_fp8_accuracy.cpp on the device.
#include "attention_fp8_accuracy.cpp"
