// The program `triptych`.
#include "cli/commands.h"

int main(int argc, char** argv) { return triptych::cli::run_program(argc, argv); }
