# Finds the headers of CUTLASS and CuTe: the target CutlassHeaders::CutlassHeaders. It is installed with Imbrex, so that
# projects that use Imbrex search the same places:
#   - the directory given by -DIMBREX_CUTLASS_DIR (a checkout, an unpacked wheel), exclusively;
#   - the environment variable CUTLASS_PATH, and installed packages (CMAKE_PREFIX_PATH, the system);
#   - the nvidia-cutlass package of the Python on the PATH;
#   - the copy of Imbrex's own build (IMBREX_DEPENDENCY_DIR).
set(places)
if(IMBREX_CUTLASS_DIR)
    set(places "${IMBREX_CUTLASS_DIR}" NO_DEFAULT_PATH)
else()
    list(APPEND places "$ENV{CUTLASS_PATH}")
    find_program(python NAMES python3 python NO_CACHE)
    if(python)
        set(question "import importlib.util as u; print(u.find_spec('cutlass_library').submodule_search_locations[0])")
        execute_process(COMMAND "${python}" -c "${question}"
                        OUTPUT_VARIABLE package OUTPUT_STRIP_TRAILING_WHITESPACE ERROR_QUIET)
        list(APPEND places "${package}")
    endif()
    if(IMBREX_DEPENDENCY_DIR)
        list(APPEND places "${IMBREX_DEPENDENCY_DIR}/cutlass")
    endif()
endif()

find_path(CutlassHeaders_INCLUDE_DIR cute/layout.hpp PATHS ${places}
          PATH_SUFFIXES include source/include cutlass_library/source/include NO_CACHE)
if(CutlassHeaders_INCLUDE_DIR)
    file(STRINGS "${CutlassHeaders_INCLUDE_DIR}/cutlass/version.h" lines REGEX "#define CUTLASS_(MAJOR|MINOR|PATCH) ")
    string(REGEX MATCHALL "[0-9]+" numbers "${lines}")
    list(JOIN numbers "." CutlassHeaders_VERSION)
endif()

include(FindPackageHandleStandardArgs)
find_package_handle_standard_args(CutlassHeaders REQUIRED_VARS CutlassHeaders_INCLUDE_DIR
                                  VERSION_VAR CutlassHeaders_VERSION)

if(CutlassHeaders_FOUND AND NOT TARGET CutlassHeaders::CutlassHeaders)
    # Headers of an imported target are system headers, so their warnings are suppressed.
    add_library(CutlassHeaders::CutlassHeaders INTERFACE IMPORTED)
    set_target_properties(CutlassHeaders::CutlassHeaders PROPERTIES
                          INTERFACE_INCLUDE_DIRECTORIES "${CutlassHeaders_INCLUDE_DIR}")
endif()
