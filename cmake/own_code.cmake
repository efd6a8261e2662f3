# How the code of this repository itself (tests, examples, benchmarks) is compiled: strictly. A project that uses the
# library gets none of this.
if(NOT DEFINED CMAKE_COMPILE_WARNING_AS_ERROR)
    set(CMAKE_COMPILE_WARNING_AS_ERROR ON)  # off again with cmake --compile-no-warning-as-error
endif()

add_library(imbrex_own_code INTERFACE)
target_link_libraries(imbrex_own_code INTERFACE imbrex::imbrex)
target_compile_options(imbrex_own_code INTERFACE
    "$<$<COMPILE_LANGUAGE:CXX>:-Wall;-Wextra>"
    # Reports of the checker name files as they lie in the repository.
    "$<$<COMPILE_LANGUAGE:CXX>:-fmacro-prefix-map=${PROJECT_SOURCE_DIR}/=>"
    "$<$<COMPILE_LANGUAGE:CUDA>:-Xcompiler=-Wall,-Wextra;-lineinfo>")

if(IMBREX_CUDA_ENABLED)
    find_package(CUDAToolkit REQUIRED)
    # Every device compilation fails where ptxas spills registers or serialises the tensor cores.
    set(IMBREX_CHECKED_NVCC sh "${PROJECT_SOURCE_DIR}/cmake/checked_nvcc.sh")
    set(CMAKE_CUDA_COMPILER_LAUNCHER ${IMBREX_CHECKED_NVCC} ${CMAKE_CUDA_COMPILER_LAUNCHER})
endif()

# Sets result to a generated .cu file that includes the source: with it nvcc compiles, for both worlds, the file that
# the host compiler compiles for the host world.
function(imbrex_as_cuda result source)
    cmake_path(RELATIVE_PATH source BASE_DIRECTORY "${PROJECT_SOURCE_DIR}" OUTPUT_VARIABLE name)
    set(generated "${PROJECT_BINARY_DIR}/as_cuda/${name}.cu")
    file(CONFIGURE OUTPUT "${generated}" CONTENT "#include \"${source}\"\n")
    set(${result} "${generated}" PARENT_SCOPE)
endfunction()

# Compiles a .cu file for each of the architectures (80, 90a, ...), as part of the build and with the checks of
# checked_nvcc.sh. The result is not run: for most of them there is no machine.
function(imbrex_compile_for source)
    cmake_path(GET source STEM name)
    set(architectures ${ARGN})
    list(TRANSFORM architectures APPEND "-real")
    add_library(imbrex_architectures_${name} OBJECT "${source}")
    target_link_libraries(imbrex_architectures_${name} PRIVATE imbrex_own_code)
    target_compile_definitions(imbrex_architectures_${name} PRIVATE IMBREX_DEVICE_ALONE)
    set_target_properties(imbrex_architectures_${name} PROPERTIES CUDA_ARCHITECTURES "${architectures}")
endfunction()

# Sets result to generated files, <name>_<number>.<extension>, each of which stands for several of the sources: a compiler that reads the
# headers once for all of them, and compiles what all of them need once, is done sooner. All headers come first; then each source in a
# namespace of its own, where it knows no names of the others. Sources name headers by paths from the include directories, and include them
# under no condition.
set(IMBREX_SOURCES_IN_A_BATCH 4 CACHE STRING "So many files of tests are compiled as one")
function(imbrex_in_batches result name extension)
    set(batches)
    set(sources ${ARGN})
    set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS ${sources})  # whose lines of #include are read here
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
