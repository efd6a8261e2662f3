// The program: command_line.cpp reads what it is asked to do.
#include <iostream>

#include "engine/cli/commands.hpp"

int main(int argc, char** argv) {
    return imbrex::engine::run_command(argc, argv, std::cin, std::cout, std::cerr);
}
