# Finds NCCL: the target NCCL::NCCL. It is installed with Imbrex, so that projects that use Imbrex search the same
# places:
#   - the directory given by -DIMBREX_NCCL_DIR (with include/nccl.h and lib/libnccl.so), exclusively;
#   - the environment variables NCCL_ROOT and NCCL_HOME, and installed packages (CMAKE_PREFIX_PATH, the system);
#   - the CUDA toolkit;
#   - the nvidia-nccl package of the Python on the PATH.
set(places)
if(IMBREX_NCCL_DIR)
    set(places "${IMBREX_NCCL_DIR}" NO_DEFAULT_PATH)
else()
    list(APPEND places "$ENV{NCCL_ROOT}" "$ENV{NCCL_HOME}")
    if(CMAKE_CUDA_COMPILER)
        file(REAL_PATH "${CMAKE_CUDA_COMPILER}" compiler)
        cmake_path(GET compiler PARENT_PATH directory)
        cmake_path(GET directory PARENT_PATH directory)
        list(APPEND places "${directory}")
    endif()
    find_program(python NAMES python3 python NO_CACHE)
    if(python)
        set(question "import importlib.util as u; print(u.find_spec('nvidia.nccl').submodule_search_locations[0])")
        execute_process(COMMAND "${python}" -c "${question}"
                        OUTPUT_VARIABLE package OUTPUT_STRIP_TRAILING_WHITESPACE ERROR_QUIET)
        list(APPEND places "${package}")
    endif()
endif()

find_path(NCCL_INCLUDE_DIR nccl.h PATHS ${places} PATH_SUFFIXES include NO_CACHE)
find_library(NCCL_LIBRARY NAMES nccl libnccl.so.2 PATHS ${places} PATH_SUFFIXES lib lib64 NO_CACHE)
if(NCCL_INCLUDE_DIR)
    file(STRINGS "${NCCL_INCLUDE_DIR}/nccl.h" lines REGEX "#define NCCL_(MAJOR|MINOR|PATCH) ")
    string(REGEX MATCHALL "[0-9]+" numbers "${lines}")
    list(JOIN numbers "." NCCL_VERSION)
endif()

include(FindPackageHandleStandardArgs)
find_package_handle_standard_args(NCCL REQUIRED_VARS NCCL_LIBRARY NCCL_INCLUDE_DIR VERSION_VAR NCCL_VERSION)

if(NCCL_FOUND AND NOT TARGET NCCL::NCCL)
    add_library(NCCL::NCCL UNKNOWN IMPORTED)
    set_target_properties(NCCL::NCCL PROPERTIES IMPORTED_LOCATION "${NCCL_LIBRARY}"
                          INTERFACE_INCLUDE_DIRECTORIES "${NCCL_INCLUDE_DIR}")
endif()
