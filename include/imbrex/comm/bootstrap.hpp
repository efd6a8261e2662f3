// Rank, world size, local rank and rendezvous address of this process, read from the environment variables that
// launchers set. Nothing is sent or received here.
//
//     torchrun   RANK, WORLD_SIZE, LOCAL_RANK, MASTER_ADDR, MASTER_PORT
//     Open MPI   OMPI_COMM_WORLD_RANK, OMPI_COMM_WORLD_SIZE, OMPI_COMM_WORLD_LOCAL_RANK   if RANK is not set
//     Slurm      SLURM_PROCID, SLURM_NTASKS, SLURM_LOCALID                                if neither is set
//
// Open MPI and Slurm set no rendezvous address: the user sets MASTER_ADDR and MASTER_PORT (mpirun -x, srun --export).
// With MPI linked, comm/mpi_bootstrap.hpp needs neither.
#pragma once

#include <imbrex/core/error.hpp>

#include <array>
#include <charconv>
#include <cstdlib>
#include <optional>
#include <string>
#include <system_error>

namespace imbrex {

struct rank_environment {
    int rank = 0;
    int ranks = 1;
    std::optional<int> local_rank = {};  // on this machine; not every launcher sets it
    std::string master_address = {};     // host of rank 0: a name, IPv4 or IPv6 address
    int master_port = 0;
};

namespace detail {

struct launcher_variables {
    const char* rank;
    const char* ranks;
    const char* local_rank;
};
inline constexpr std::array<launcher_variables, 3> known_launchers{{
    {"RANK", "WORLD_SIZE", "LOCAL_RANK"},
    {"OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_LOCAL_RANK"},
    {"SLURM_PROCID", "SLURM_NTASKS", "SLURM_LOCALID"},
}};

inline constexpr int max_ranks = 1 << 20;

// Digits only, in [least, most].
inline int parse_env_int(const char* name, const char* text, int least, int most, const char* description) {
    require(text != nullptr, name, ": not set; ", description, " is needed, ", least, " to ", most);
    const std::string value = text;
    int number = 0;
    const auto [end, problem] = std::from_chars(value.data(), value.data() + value.size(), number);
    require(problem == std::errc{} && end == value.data() + value.size() && number >= least && number <= most, name,
            ": '", value, "'; ", description, " is a number from ", least, " to ", most);
    return number;
}

}  // namespace detail

// `read(name)` returns the value of a variable, or null if it is not set.
template <class Read>
rank_environment read_rank_environment(const Read& read) {
    const detail::launcher_variables* names = &detail::known_launchers.front();
    for (const detail::launcher_variables& one : detail::known_launchers) {
        if (read(one.rank) == nullptr) continue;
        names = &one;
        break;
    }
    require(read(names->rank) != nullptr,
            "RANK: not set; torchrun sets it, Open MPI OMPI_COMM_WORLD_RANK and Slurm SLURM_PROCID, and one of them is "
            "needed to know which rank this process is");

    rank_environment found;
    found.ranks = detail::parse_env_int(names->ranks, read(names->ranks), 1, detail::max_ranks, "the number of ranks");
    found.rank = detail::parse_env_int(names->rank, read(names->rank), 0, found.ranks - 1, "the rank of this process");
    if (const char* local = read(names->local_rank)) {
        found.local_rank = detail::parse_env_int(names->local_rank, local, 0, found.ranks - 1,
                                                 "the rank among the processes of this machine");
    }
    const char* address = read("MASTER_ADDR");
    require(address != nullptr, "MASTER_ADDR: not set; the name or the address of the machine of rank 0 is needed");
    found.master_address = address;
    require(!found.master_address.empty() && found.master_address.find_first_of(" \t\n[]") == std::string::npos,
            "MASTER_ADDR: '", found.master_address,
            "'; the name or the address of the machine of rank 0 is needed, without blanks and brackets");
    // The rendezvous uses MASTER_PORT + 1 (rendezvous_address), so the last port is excluded.
    found.master_port =
        detail::parse_env_int("MASTER_PORT", read("MASTER_PORT"), 1, 65534, "a port of the machine of rank 0");
    return found;
}

inline rank_environment read_rank_environment() {
    return read_rank_environment([](const char* name) { return static_cast<const char*>(std::getenv(name)); });
}

// Rendezvous address in the form of NCCL_COMM_ID: address:port, [address]:port for IPv6. torchrun's store may listen at
// MASTER_PORT as long as the processes live, so this is MASTER_PORT + 1.
inline std::string rendezvous_address(const rank_environment& who) {
    const bool has_colons = who.master_address.find(':') != std::string::npos;
    return str_cat(has_colons ? "[" : "", who.master_address, has_colons ? "]" : "", ":", who.master_port + 1);
}

}  // namespace imbrex
