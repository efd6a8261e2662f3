# Passes if SOURCE does not compile and the compiler's output contains every message that SOURCE expects:
#   cmake -DCOMPILER=<command;with;arguments> -DSOURCE=<file> -P expect_failure.cmake
file(STRINGS "${SOURCE}" expectations REGEX "^// (expect|first): ")
if(NOT expectations)
    message(FATAL_ERROR "No line \"// expect: <part of a message>\" in ${SOURCE}")
endif()

execute_process(COMMAND ${COMPILER} "${SOURCE}" RESULT_VARIABLE status OUTPUT_VARIABLE output ERROR_VARIABLE output)
if(status EQUAL 0)
    message(FATAL_ERROR "It compiles, and it must not: ${SOURCE}")
endif()

# A compiler may quote the source, so the expectation itself is removed from its output.
string(REGEX REPLACE "// (expect|first): [^\n]*" "" said "${output}")
foreach(expectation IN LISTS expectations)
    string(REGEX REPLACE "^// (expect|first): " "" expectation "${expectation}")
    string(FIND "${said}" "${expectation}" position)
    if(position EQUAL -1)
        message(FATAL_ERROR "It fails, but nothing says \"${expectation}\": ${SOURCE}\n${output}")
    endif()
endforeach()

# "// first: <part of a message>": the first error must contain this message.
file(STRINGS "${SOURCE}" firsts REGEX "^// first: ")
foreach(first IN LISTS firsts)
    string(REPLACE "// first: " "" first "${first}")
    string(REGEX MATCH "error:[^\n]*" found "${said}")
    string(FIND "${found}" "${first}" position)
    if(position EQUAL -1)
        message(FATAL_ERROR "The first error does not say \"${first}\": ${SOURCE}\n${output}")
    endif()
endforeach()
