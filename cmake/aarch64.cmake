# Cross-compiles for 64-bit Arm and runs the result in an emulator, with Debian's g++-aarch64-linux-gnu and qemu-user.
# The processor is the one that the engine's CPU results refer to.
set(CMAKE_SYSTEM_NAME Linux)
set(CMAKE_SYSTEM_PROCESSOR aarch64)
set(CMAKE_CXX_COMPILER aarch64-linux-gnu-g++)
set(CMAKE_CXX_FLAGS_INIT "-mcpu=neoverse-v1")
set(CMAKE_EXE_LINKER_FLAGS_INIT "-static")  # so the emulator needs no target libraries
set(CMAKE_CROSSCOMPILING_EMULATOR qemu-aarch64 -cpu max)
