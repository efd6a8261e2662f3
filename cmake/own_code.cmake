# Strict compiler options for the code of this repository (tests, examples, benchmarks). Projects that use the library
# do not inherit them.
if(NOT DEFINED CMAKE_COMPILE_WARNING_AS_ERROR)
    set(CMAKE_COMPILE_WARNING_AS_ERROR ON)  # off again with cmake --compile-no-warning-as-error
endif()

add_library(imbrex_own_code INTERFACE)
target_link_libraries(imbrex_own_code INTERFACE imbrex::imbrex)
target_compile_options(imbrex_own_code INTERFACE
    "$<$<COMPILE_LANGUAGE:CXX>:-Wall;-Wextra>"
    # Reports of the checker name files relative to the repository.
    "$<$<COMPILE_LANGUAGE:CXX>:-fmacro-prefix-map=${PROJECT_SOURCE_DIR}/=>"
    "$<$<COMPILE_LANGUAGE:CUDA>:-Xcompiler=-Wall,-Wextra;-lineinfo>")

if(IMBREX_CUDA_ENABLED)
    find_package(CUDAToolkit REQUIRED)
    # Every device compilation fails if ptxas spills registers or serialises wgmma.
    set(IMBREX_CHECKED_NVCC sh "${PROJECT_SOURCE_DIR}/cmake/checked_nvcc.sh")
    set(CMAKE_CUDA_COMPILER_LAUNCHER ${IMBREX_CHECKED_NVCC} ${CMAKE_CUDA_COMPILER_LAUNCHER})
endif()

# Sets result to a generated .cu file that includes the source: nvcc then compiles, for both worlds, the file that the
# host compiler compiles for the host world.
function(imbrex_as_cuda result source)
    cmake_path(RELATIVE_PATH source BASE_DIRECTORY "${PROJECT_SOURCE_DIR}" OUTPUT_VARIABLE name)
    set(generated "${PROJECT_BINARY_DIR}/as_cuda/${name}.cu")
    file(CONFIGURE OUTPUT "${generated}" CONTENT "#include \"${source}\"\n")
    set(${result} "${generated}" PARENT_SCOPE)
endfunction()

# Compiles a .cu file for each of the architectures (80, 90a, ...) as part of the build, with the checks of
# checked_nvcc.sh. The result is not run.
function(imbrex_compile_for source)
    cmake_path(GET source STEM name)
    set(architectures ${ARGN})
    list(TRANSFORM architectures APPEND "-real")
    add_library(imbrex_architectures_${name} OBJECT "${source}")
    target_link_libraries(imbrex_architectures_${name} PRIVATE imbrex_own_code)
    target_compile_definitions(imbrex_architectures_${name} PRIVATE IMBREX_DEVICE_ALONE)
    set_target_properties(imbrex_architectures_${name} PROPERTIES CUDA_ARCHITECTURES "${architectures}")
endfunction()

# Sets result to generated files, <name>_<number>.<extension>, each of which includes several sources: the compiler then
# parses the headers and instantiates shared templates once for all of them. All headers come first, then each source in
# its own namespace, which hides its names from the others. Sources must name headers by paths from the include
# directories, and must not include them conditionally.
set(IMBREX_SOURCES_IN_A_BATCH 4 CACHE STRING "The number of test files that are compiled as one")
function(imbrex_in_batches result name extension)
    set(batches)
    set(sources ${ARGN})
    set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS ${sources})  # their #include lines are read here
    while(sources)
        list(SUBLIST sources 0 ${IMBREX_SOURCES_IN_A_BATCH} batch)
        list(REMOVE_ITEM sources ${batch})
        set(headers)
        set(bodies)
        foreach(source IN LISTS batch)
            file(STRINGS "${source}" included REGEX "^#include")
            list(APPEND headers ${included})
            list(LENGTH bodies number)
            list(APPEND bodies "namespace source_${number} {\n#include \"${source}\"\n}")
        endforeach()
        list(REMOVE_DUPLICATES headers)
        list(JOIN headers "\n" headers)
        list(JOIN bodies "\n" bodies)
        list(LENGTH batches number)
        set(generated "${PROJECT_BINARY_DIR}/in_batches/${name}_${number}.${extension}")
        file(CONFIGURE OUTPUT "${generated}" CONTENT "${headers}\n${bodies}\n" @ONLY)
        list(APPEND batches "${generated}")
    endwhile()
    set(${result} "${batches}" PARENT_SCOPE)
endfunction()
