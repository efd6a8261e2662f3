// The main function of the device tests. Without a GPU it returns the code that CTest treats as "skipped".
#define DOCTEST_CONFIG_IMPLEMENT
#include <cuda_runtime_api.h>
#include <doctest/doctest.h>

#include <cstdio>

int main(int count, char** arguments) {
    int devices = 0;
    const cudaError_t status = cudaGetDeviceCount(&devices);
    if (status != cudaSuccess || devices == 0) {
        std::printf("skipped: there is no GPU to run the device tests on (%s)\n", cudaGetErrorString(status));
        return 77;
    }
    return doctest::Context(count, arguments).run();
}
