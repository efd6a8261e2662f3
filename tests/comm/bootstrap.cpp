// read_rank_environment: the variables of torchrun, Open MPI and Slurm, and every invalid value.
#include "worlds.hpp"

#include <imbrex/comm/bootstrap.hpp>

#include <map>
#include <string>

using namespace imbrex;
using imbrex_test::error_message_of;

namespace {

using variables = std::map<std::string, std::string>;

rank_environment read(const variables& set) {
    return read_rank_environment([&](const char* name) {
        const auto found = set.find(name);
        return found == set.end() ? nullptr : found->second.c_str();
    });
}

const variables of_torchrun = {
    {"RANK", "5"}, {"WORLD_SIZE", "8"}, {"LOCAL_RANK", "1"}, {"MASTER_ADDR", "10.0.0.7"}, {"MASTER_PORT", "29500"}};

// torchrun's variables with one changed, or without one.
variables with(const std::string& name, const std::string& value) {
    variables set = of_torchrun;
    set[name] = value;
    return set;
}
variables without(const std::string& name) {
    variables set = of_torchrun;
    set.erase(name);
    return set;
}

}  // namespace

TEST_CASE("bootstrap: reads torchrun's variables") {
    const rank_environment who = read(of_torchrun);
    CHECK(who.rank == 5);
    CHECK(who.ranks == 8);
    CHECK(who.local_rank == 1);
    CHECK(who.master_address == "10.0.0.7");
    CHECK(who.master_port == 29500);
    CHECK(rendezvous_address(who) == "10.0.0.7:29501");
}

TEST_CASE("bootstrap: the local rank is optional") {
    CHECK(!read(without("LOCAL_RANK")).local_rank.has_value());
}

TEST_CASE("bootstrap: falls back to Open MPI and Slurm if RANK is not set") {
    const variables place = {{"MASTER_ADDR", "head"}, {"MASTER_PORT", "65534"}};
    variables set = place;
    set.merge(variables{{"SLURM_PROCID", "3"}, {"SLURM_NTASKS", "4"}, {"SLURM_LOCALID", "0"}});
    CHECK(read(set).rank == 3);
    CHECK(read(set).ranks == 4);
    CHECK(read(set).local_rank == 0);
    CHECK(rendezvous_address(read(set)) == "head:65535");

    set.merge(
        variables{{"OMPI_COMM_WORLD_RANK", "11"}, {"OMPI_COMM_WORLD_SIZE", "12"}, {"OMPI_COMM_WORLD_LOCAL_RANK", "5"}});
    CHECK(read(set).rank == 11);
    CHECK(read(set).ranks == 12);
    CHECK(read(set).local_rank == 5);

    set.merge(variables{{"RANK", "0"}, {"WORLD_SIZE", "1"}});
    CHECK(read(set).rank == 0);
    CHECK(read(set).ranks == 1);
    CHECK(!read(set).local_rank.has_value());
}

TEST_CASE("bootstrap: puts brackets around an IPv6 address") {
    CHECK(rendezvous_address(read(with("MASTER_ADDR", "fd00::12"))) == "[fd00::12]:29501");
}

TEST_CASE("bootstrap: names a missing variable") {
    CHECK(error_message_of([] { read({}); }) ==
          "RANK: not set; torchrun sets it, Open MPI OMPI_COMM_WORLD_RANK and Slurm SLURM_PROCID, and one of them is "
          "needed to know which rank this process is");
    CHECK(error_message_of([] { read(without("WORLD_SIZE")); }) ==
          "WORLD_SIZE: not set; the number of ranks is needed, 1 to 1048576");
    CHECK(error_message_of([] { read(without("MASTER_ADDR")); }) ==
          "MASTER_ADDR: not set; the name or the address of the machine of rank 0 is needed");
    CHECK(error_message_of([] { read(without("MASTER_PORT")); }) ==
          "MASTER_PORT: not set; a port of the machine of rank 0 is needed, 1 to 65534");
    const variables open_mpi = {{"OMPI_COMM_WORLD_RANK", "0"}};
    CHECK(error_message_of([&] { read(open_mpi); }) ==
          "OMPI_COMM_WORLD_SIZE: not set; the number of ranks is needed, 1 to 1048576");
}

TEST_CASE("bootstrap: rejects values that are not numbers or out of range") {
    for (const char* text : {"", "x", "3x", " 3", "3 ", "+3", "-1", "8", "0x1", "1.0", "99999999999999999999"}) {
        CAPTURE(text);
        CHECK(error_message_of([&] { read(with("RANK", text)); }) ==
              str_cat("RANK: '", text, "'; the rank of this process is a number from 0 to 7"));
        CHECK(
            error_message_of([&] { read(with("LOCAL_RANK", text)); }) ==
            str_cat("LOCAL_RANK: '", text, "'; the rank among the processes of this machine is a number from 0 to 7"));
    }
    for (const char* text : {"0", "-8", "eight", "1048577"}) {
        CAPTURE(text);
        CHECK(error_message_of([&] { read(with("WORLD_SIZE", text)); }) ==
              str_cat("WORLD_SIZE: '", text, "'; the number of ranks is a number from 1 to 1048576"));
    }
    for (const char* text : {"0", "65535", "70000", "http"}) {
        CAPTURE(text);
        CHECK(error_message_of([&] { read(with("MASTER_PORT", text)); }) ==
              str_cat("MASTER_PORT: '", text, "'; a port of the machine of rank 0 is a number from 1 to 65534"));
    }
    for (const char* text : {"", "two words", "[::1]"}) {
        CAPTURE(text);
        CHECK(error_message_of([&] { read(with("MASTER_ADDR", text)); }) ==
              str_cat("MASTER_ADDR: '", text,
                      "'; the name or the address of the machine of rank 0 is needed, without blanks and brackets"));
    }
}
