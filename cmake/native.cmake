# Compiler options for the build machine.
#
# -march=native with one correction: on Neoverse-V1 without SVE, as in many virtual machines, GCC 12 disables the int8
# dot product (+nodotprod) although the system reports it. The engine is three times as fast with it, so the feature is
# added to the list.
include(CheckCXXCompilerFlag)

# Sets `result` to the list of options; empty if the compiler does not support -march=native.
function(imbrex_native_options result)
    set(${result} "" PARENT_SCOPE)
    check_cxx_compiler_flag(-march=native IMBREX_HAS_MARCH_NATIVE)
    if(NOT IMBREX_HAS_MARCH_NATIVE)
        return()
    endif()
    set(${result} -march=native PARENT_SCOPE)

    if(NOT CMAKE_CXX_COMPILER_ID STREQUAL GNU OR CMAKE_CROSSCOMPILING OR NOT EXISTS /proc/cpuinfo)
        return()
    endif()
    execute_process(COMMAND "${CMAKE_CXX_COMPILER}" -march=native -Q --help=target OUTPUT_VARIABLE target ERROR_QUIET)
    file(STRINGS /proc/cpuinfo dot_products REGEX "^Features.* asimddp( |$)")
    if(dot_products AND target MATCHES "-march=[ \t]*([^ \t\n]*)\\+nodotprod([^ \t\n]*)")
        set(flags "-march=${CMAKE_MATCH_1}+dotprod${CMAKE_MATCH_2}")
        check_cxx_compiler_flag("${flags}" IMBREX_HAS_MARCH_DOTPROD)
        if(IMBREX_HAS_MARCH_DOTPROD)
            set(${result} "${flags}" PARENT_SCOPE)
        endif()
    endif()
endfunction()
