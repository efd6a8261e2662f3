// What the library needs to know about its compiler, and the few macros it has.
//
// A kernel lives in two worlds. nvcc reads a source file twice: once to make host code, once (with __CUDA_ARCH__ set)
// to make device code. Imbrex takes the pass as the world: in the host pass `warp`, `register_tile` and every operation
// are those of the host world, in the device pass those of the device world. Any other compiler has a host pass only.
// So the two never meet in one pass, a kernel needs no template argument that says where it runs, and each world is
// free to keep what it likes in its own types, as long as what both see (kernel arguments, shared memory) has the same
// bytes.
#pragma once

#define IMBREX_VERSION_MAJOR 0
#define IMBREX_VERSION_MINOR 1
#define IMBREX_VERSION_PATCH 0

// Set in the device pass alone. Outside hw/ it chooses what a type stores or which half of hw/ a header includes; it
// never appears in a kernel.
#if defined(__CUDA_ARCH__)
#define IMBREX_DEVICE_WORLD 1
#else
#define IMBREX_DEVICE_WORLD 0
#endif

// A CUDA program that never runs a kernel in the host world may define IMBREX_DEVICE_ALONE: the compiler then makes no
// host code of kernels, which takes up to half of a compilation, and a launch in the host world is refused.

// IMBREX_FN: a pure function, callable from anywhere: number conversions, functors, shapes.
// IMBREX_KERNEL: a function that runs inside a kernel, on a scope; in each pass it belongs to that pass's world.
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

// A program may link files of two compilers, and then a function has one definition for both, whichever comes first. What differs with the
// compiler is therefore in an inline namespace that names what the file has: launches, memory and descriptors of the device, and all that
// uses them. Problems, views, element types and errors are outside, and are the same types in all files of a program.
#if !defined(__CUDACC__)
#define IMBREX_WORLDS worlds_host
#elif defined(IMBREX_DEVICE_ALONE)
#define IMBREX_WORLDS worlds_device
#else
#define IMBREX_WORLDS worlds_both
#endif

namespace imbrex {

// True where this pass makes device code.
inline constexpr bool device_world = IMBREX_DEVICE_WORLD;

}  // namespace imbrex
