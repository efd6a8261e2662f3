# Compiles for 64-bit Arm on another machine, and runs what is compiled in an emulator: with g++-aarch64-linux-gnu and qemu-user, as Debian
# calls them. The processor is the one that the engine's aims on a CPU are told for.
set(CMAKE_SYSTEM_NAME Linux)
set(CMAKE_SYSTEM_PROCESSOR aarch64)
set(CMAKE_CXX_COMPILER aarch64-linux-gnu-g++)
set(CMAKE_CXX_FLAGS_INIT "-mcpu=neoverse-v1")
set(CMAKE_EXE_LINKER_FLAGS_INIT "-static")  # the emulator then needs no libraries of the other machine
set(CMAKE_CROSSCOMPILING_EMULATOR qemu-aarch64 -cpu max)
