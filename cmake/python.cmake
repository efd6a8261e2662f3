# imbrex_provide_python(<result> <environment> <question> <package>...): a Python interpreter that has the packages. `question`
# is Python that prints lines, which become `result`; an empty result means that it failed. Sets Python3_EXECUTABLE.
#
# If the interpreter on the PATH lacks a package, the main project (IMBREX_PYTHON) makes a virtual environment of that name in
# the dependency directory and installs the packages there from PyPI.
function(imbrex_ask_python result python question)
    execute_process(COMMAND "${python}" -c "${question}"
                    OUTPUT_VARIABLE answer RESULT_VARIABLE status ERROR_QUIET OUTPUT_STRIP_TRAILING_WHITESPACE)
    string(REPLACE "\n" ";" answer "${answer}")
    if(NOT status EQUAL 0)
        set(answer)
    endif()
    set(${result} "${answer}" PARENT_SCOPE)
endfunction()

function(imbrex_provide_python result environment question)
    find_package(Python3 REQUIRED COMPONENTS Interpreter)
    imbrex_ask_python(answer "${Python3_EXECUTABLE}" "${question}")
    if(NOT answer AND IMBREX_PYTHON)
        set(folder "${IMBREX_DEPENDENCY_DIR}/${environment}")
        if(NOT EXISTS "${folder}/bin/python3")
            message(STATUS "Installing ${ARGN} from PyPI into ${folder}")
            execute_process(COMMAND "${Python3_EXECUTABLE}" -m venv "${folder}" COMMAND_ERROR_IS_FATAL ANY)
            execute_process(COMMAND "${folder}/bin/python3" -m pip install --quiet ${ARGN} COMMAND_ERROR_IS_FATAL ANY)
        endif()
        set(Python3_EXECUTABLE "${folder}/bin/python3")
        imbrex_ask_python(answer "${Python3_EXECUTABLE}" "${question}")
    endif()
    set(${result} "${answer}" PARENT_SCOPE)
    set(Python3_EXECUTABLE "${Python3_EXECUTABLE}" PARENT_SCOPE)
endfunction()

# imbrex_find_device(<whether the framework has CUDA>): sets has_device, whether there is also a compiler for the device world, and
# enables it.
macro(imbrex_find_device framework_has_cuda)
    set(IMBREX_CUDA_ARCHITECTURES 90a-real CACHE STRING "CUDA architectures of the kernels")
    set(has_device OFF)
    if("${framework_has_cuda}" AND NOT "${IMBREX_CUDA}" STREQUAL "OFF")
        include(CheckLanguage)
        check_language(CUDA)
        if(CMAKE_CUDA_COMPILER)
            set(CMAKE_CUDA_ARCHITECTURES ${IMBREX_CUDA_ARCHITECTURES})
            enable_language(CUDA)
            find_package(CUDAToolkit REQUIRED)
            set(has_device ON)
        endif()
    endif()
endmacro()

# imbrex_add_worlds(<name> <worlds> <list>): the variants of a list for a package's library, in the worlds host, device, both, or
# AUTO: the device if there is one (has_device), or else the host.
function(imbrex_add_worlds name worlds list)
    set(wanted "${worlds}")
    if(NOT worlds STREQUAL "AUTO")
        string(REPLACE "both" "host;device" wanted "${worlds}")
    elseif(has_device)
        set(wanted device)
    else()
        set(wanted host)
    endif()
    foreach(world IN LISTS wanted)
        if(world STREQUAL "device" AND NOT has_device)
            message(FATAL_ERROR "The worlds of ${name} are ${worlds}, but a CUDA compiler or a framework with CUDA is missing.")
        endif()
        imbrex_add_variants(${name} ${world} "${list}")
    endforeach()
    if(has_device)
        target_link_libraries(${name} PRIVATE CUDA::cudart_static)
        target_include_directories(${name} SYSTEM PRIVATE ${CUDAToolkit_INCLUDE_DIRS})
    endif()
    # The process may have another CUDA runtime: this library uses the one that it is linked with.
    target_link_options(${name} PRIVATE LINKER:--exclude-libs,ALL)
endfunction()

# imbrex_python_package(<name>): the Python package of a native library of that name, in the folder of that name: the library,
# the module that compiles kernels when they are first used (_compiler.py), and the headers for it. The main project also makes
# the package in the build folder, target <name>_site, and the test <name>, which runs pytest on the folder tests.
function(imbrex_python_package name)
    set(root "${CMAKE_CURRENT_FUNCTION_LIST_DIR}/..")
    set(into COMPONENT ${name})
    install(TARGETS ${name} LIBRARY DESTINATION ${name} ${into})
    install(FILES "${root}/examples/pytorch/imbrex_torch/_compiler.py" DESTINATION ${name} ${into})
    install(DIRECTORY "${root}/include/" DESTINATION ${name}/include ${into} FILES_MATCHING PATTERN "*.hpp")
    install(DIRECTORY "${root}/examples/bindings/" DESTINATION ${name}/include/imbrex_bindings ${into}
            FILES_MATCHING PATTERN "*.hpp")
    if(TARGET CutlassHeaders::CutlassHeaders)
        get_target_property(cutlass_include CutlassHeaders::CutlassHeaders INTERFACE_INCLUDE_DIRECTORIES)
        foreach(folder IN ITEMS cute cutlass)
            install(DIRECTORY "${cutlass_include}/${folder}" DESTINATION ${name}/include ${into}
                    FILES_MATCHING PATTERN "*.h*" PATTERN "*.inl")
        endforeach()
    endif()
    if(CMAKE_SOURCE_DIR STREQUAL CMAKE_CURRENT_SOURCE_DIR)
        return()
    endif()

    set(site "${CMAKE_CURRENT_BINARY_DIR}/site")
    add_custom_target(${name}_site ALL
        COMMAND "${CMAKE_COMMAND}" --install "${CMAKE_BINARY_DIR}" --component ${name} --prefix "${site}"
        COMMAND "${CMAKE_COMMAND}" -E copy_directory "${CMAKE_CURRENT_SOURCE_DIR}/${name}" "${site}/${name}"
        DEPENDS ${name} VERBATIM)
    add_test(NAME ${name} COMMAND "${Python3_EXECUTABLE}" -B -m pytest -q "${CMAKE_CURRENT_SOURCE_DIR}/tests"
             WORKING_DIRECTORY "${CMAKE_CURRENT_BINARY_DIR}")
    string(TOUPPER "${name}_CACHE" cache)
    set_tests_properties(${name} PROPERTIES LABELS python ENVIRONMENT
                         "PYTHONPATH=${site};${cache}=${CMAKE_CURRENT_BINARY_DIR}/cache")
endfunction()
