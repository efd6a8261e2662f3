# What to compile with for the machine that builds.
#
# -march=native, but for one thing: GCC 12 says of Neoverse-V1 where SVE is off, as in many virtual machines, that it has no dot products of
# bytes (+nodotprod). The system tells that it has; the engine is three times as fast with them. Then it is the same list of features with
# this one in it.
include(CheckCXXCompilerFlag)

# The options as a list in the variable `result`; an empty one where the compiler knows no -march=native.
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
        set(told "-march=${CMAKE_MATCH_1}+dotprod${CMAKE_MATCH_2}")
        check_cxx_compiler_flag("${told}" IMBREX_HAS_MARCH_TOLD)
        if(IMBREX_HAS_MARCH_TOLD)
            set(${result} "${told}" PARENT_SCOPE)
        endif()
    endif()
endfunction()
