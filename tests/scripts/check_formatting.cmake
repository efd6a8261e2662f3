# Fails if clang-format would change a file. "clang-format -i" on the named files fixes it.
file(GLOB_RECURSE sources
     include/*.hpp tests/*.hpp tests/*.cpp tests/*.cu tests/*.c tests/*.h
     examples/*.hpp examples/*.cpp examples/*.cu examples/*.h
     bench/*.hpp bench/*.cpp bench/*.cu)
execute_process(COMMAND "${CLANG_FORMAT}" --dry-run -Werror ${sources} RESULT_VARIABLE failed)
if(failed)
    message(FATAL_ERROR "The files above are not formatted; run ${CLANG_FORMAT} -i <file>.")
endif()
