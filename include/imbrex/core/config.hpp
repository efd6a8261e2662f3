// The pass, the worlds and the macros of the library.
//
// A kernel runs in two worlds: on the device, and in the host world, where a simulator executes it on the CPU and
// checks its synchronisation. nvcc reads a source file twice: a host pass, and a device pass with __CUDA_ARCH__ set.
// Imbrex derives the world from the pass: in the host pass `warp`, `register_tile` and every operation are those of
// the host world, in the device pass those of the device. Any other compiler has a host pass only. The two worlds never
// meet in one pass, so a kernel needs no template argument for its world, and each world stores what it needs in its
// types. Only what both worlds see (kernel arguments, shared memory) must have the same bytes.
#pragma once

#define IMBREX_VERSION_MAJOR 0
#define IMBREX_VERSION_MINOR 2
#define IMBREX_VERSION_PATCH 0

// Set in the device pass only. Outside hw/ it selects what a type stores or which half of hw/ a header includes. It
// never appears in a kernel.
#if defined(__CUDA_ARCH__)
#define IMBREX_DEVICE_WORLD 1
#else
#define IMBREX_DEVICE_WORLD 0
#endif

// A CUDA program that never runs a kernel in the host world may define IMBREX_DEVICE_ALONE. The compiler then generates
// no host code for kernels, which saves up to half of the compile time; a launch in the host world throws.

// IMBREX_FN: a pure function, callable from host and device code: number conversions, functors, shapes.
// IMBREX_KERNEL: a function that runs inside a kernel, on a scope. In each pass it belongs to the world of that pass.
#if defined(__CUDACC__)
#define IMBREX_FN __host__ __device__ __forceinline__
#if IMBREX_DEVICE_WORLD
#define IMBREX_KERNEL __device__ __forceinline__
#else
#define IMBREX_KERNEL inline
#endif
#else
#define IMBREX_FN inline
#define IMBREX_KERNEL inline
#endif

// IMBREX_WORLDS: an inline namespace for the entities whose definition depends on the compiler. A program may link a
// .cpp (host compiler) and a .cu (nvcc); the linker then keeps one definition of each inline function, that of the
// first object file. Launches, device memory, TMA descriptors and everything that uses them differ between the two, so
// their names include the worlds that the file can use: worlds_host, worlds_device (IMBREX_DEVICE_ALONE) or
// worlds_both. Problems, views, element types and errors are outside this namespace: they are the same types in all
// files.
#if !defined(__CUDACC__)
#define IMBREX_WORLDS worlds_host
#elif defined(IMBREX_DEVICE_ALONE)
#define IMBREX_WORLDS worlds_device
#else
#define IMBREX_WORLDS worlds_both
#endif

namespace imbrex {

// True in the pass that generates device code.
inline constexpr bool device_world = IMBREX_DEVICE_WORLD;

}  // namespace imbrex
