# imbrex_find_torch: PyTorch, as a Python interpreter imports it. (find_package(Torch) would enable CUDA languages and flags of
# its own.) Sets Python3_EXECUTABLE and torch_has_cuda, and the target imbrex_torch_headers.
#
# Without PyTorch in Python3_EXECUTABLE, the main project makes a virtual environment in the dependency directory and installs
# it there from PyPI: on x86-64 about 5 GB with the libraries of CUDA that it needs, elsewhere about 1 GB.
set(torch_packages "torch>=2.7" numpy pytest)

function(imbrex_ask_torch python)
    execute_process(
        COMMAND "${python}" -c
                "import torch, os; print(os.path.dirname(torch.__file__)); print(torch.version.cuda or 'none')"
        OUTPUT_VARIABLE answer RESULT_VARIABLE status ERROR_QUIET OUTPUT_STRIP_TRAILING_WHITESPACE)
    string(REPLACE "\n" ";" answer "${answer}")
    if(NOT status EQUAL 0)
        set(answer)
    endif()
    set(torch_answer "${answer}" PARENT_SCOPE)
endfunction()

macro(imbrex_find_torch)
    find_package(Python3 REQUIRED COMPONENTS Interpreter)
    imbrex_ask_torch("${Python3_EXECUTABLE}")
    if(NOT torch_answer AND IMBREX_PYTHON)
        set(python_environment "${IMBREX_DEPENDENCY_DIR}/python")
        if(NOT EXISTS "${python_environment}/bin/python3")
            message(STATUS "Installing ${torch_packages} from PyPI into ${python_environment}")
            execute_process(COMMAND "${Python3_EXECUTABLE}" -m venv "${python_environment}" COMMAND_ERROR_IS_FATAL ANY)
            execute_process(COMMAND "${python_environment}/bin/python3" -m pip install --quiet ${torch_packages}
                            COMMAND_ERROR_IS_FATAL ANY)
        endif()
        set(Python3_EXECUTABLE "${python_environment}/bin/python3")
        imbrex_ask_torch("${Python3_EXECUTABLE}")
    endif()
    if(NOT torch_answer)
        message(FATAL_ERROR "Python3_EXECUTABLE is ${Python3_EXECUTABLE}, which cannot import torch: install PyTorch first, and "
                            "run pip with --no-build-isolation.")
    endif()
    list(GET torch_answer 0 torch_root)
    list(GET torch_answer 1 torch_cuda_version)
    set(torch_has_cuda OFF)
    if(NOT torch_cuda_version STREQUAL "none")
        set(torch_has_cuda ON)
    endif()
    message(STATUS "PyTorch: ${torch_root}, CUDA ${torch_cuda_version}")

    add_library(imbrex_torch_headers INTERFACE)
    target_include_directories(imbrex_torch_headers SYSTEM INTERFACE "${torch_root}/include"
                               "${torch_root}/include/torch/csrc/api/include")
    target_link_directories(imbrex_torch_headers INTERFACE "${torch_root}/lib")
    target_link_libraries(imbrex_torch_headers INTERFACE torch torch_cpu c10)
endmacro()
