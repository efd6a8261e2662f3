// The main function; command_line.cpp parses the arguments.
#include <iostream>

#include "engine/cli/commands.hpp"

int main(int argc, char** argv) {
    return imbrex::engine::run_command(argc, argv, std::cin, std::cout, std::cerr);
}
