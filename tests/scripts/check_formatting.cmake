# Fails where clang-format would change a file. "clang-format -i" on the files it names mends them.
file(GLOB_RECURSE sources
     include/*.hpp tests/*.hpp tests/*.cpp tests/*.cu examples/*.hpp examples/*.cpp examples/*.cu
     bench/*.hpp bench/*.cpp bench/*.cu)
execute_process(COMMAND "${CLANG_FORMAT}" --dry-run -Werror ${sources} RESULT_VARIABLE failed)
if(failed)
    message(FATAL_ERROR "The files named above are not formatted; ${CLANG_FORMAT} -i <file> does it.")
endif()
