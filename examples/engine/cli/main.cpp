// The main function; command_line.cpp parses the arguments.
#include <iostream>

#include "engine/cli/commands.hpp"
#include "engine/loading/mapped_file.hpp"

int main(int argc, char** argv) {
    imbrex::engine::mapped_file::report_failed_reads();
    return imbrex::engine::run_command(argc, argv, std::cin, std::cout, std::cerr);
}
