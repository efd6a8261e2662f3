# imbrex_find_torch: PyTorch, as a Python interpreter imports it. (find_package(Torch) would enable CUDA languages and flags of
# its own.) Sets Python3_EXECUTABLE and torch_has_cuda, and the target imbrex_torch_headers.
#
# Where it is not installed, it comes from PyPI (python.cmake): on x86-64 about 5 GB with the libraries of CUDA that it needs,
# elsewhere about 1 GB.
include(python)

macro(imbrex_find_torch)
    imbrex_provide_python(torch_answer python
        "import torch, os; print(os.path.dirname(torch.__file__)); print(torch.version.cuda or 'none')"
        "torch>=2.7" numpy pytest)
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
