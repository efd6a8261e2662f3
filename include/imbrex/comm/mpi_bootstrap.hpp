// Bootstraps nccl_transport with MPI: rank, world size and local rank come from MPI, and an MPI broadcast distributes
// the NCCL unique id. MPI is not used after that. The program links MPI and calls MPI_Init itself.
//
//     const mpi_rank_info all = bootstrap_with_mpi();
//     cudaSetDevice(all.local_rank);
//     nccl_transport comm(all.rank, all.ranks, all.id);
#pragma once

#include <imbrex/core/error.hpp>

#include <mpi.h>
#include <nccl.h>

namespace imbrex {

struct mpi_rank_info {
    int rank = 0;
    int ranks = 1;
    int local_rank = 0;  // among the processes of this machine
    ncclUniqueId id = {};
};

// Collective. Errors of MPI itself go to its error handler, which ends the program by default.
inline mpi_rank_info bootstrap_with_mpi(MPI_Comm all = MPI_COMM_WORLD) {
    mpi_rank_info found;
    MPI_Comm_rank(all, &found.rank);
    MPI_Comm_size(all, &found.ranks);

    MPI_Comm machine = MPI_COMM_NULL;
    MPI_Comm_split_type(all, MPI_COMM_TYPE_SHARED, found.rank, MPI_INFO_NULL, &machine);
    MPI_Comm_rank(machine, &found.local_rank);
    MPI_Comm_free(&machine);

    // Broadcast the status too: if rank 0 gets no id, every rank throws.
    int status = found.rank == 0 ? ncclGetUniqueId(&found.id) : ncclSuccess;
    MPI_Bcast(&status, 1, MPI_INT, 0, all);
    if (status != ncclSuccess) {
        throw error(str_cat("ncclGetUniqueId failed on rank 0 of ", found.ranks, ": NCCL says '",
                            ncclGetErrorString(static_cast<ncclResult_t>(status)), "'"));
    }
    MPI_Bcast(&found.id, static_cast<int>(sizeof found.id), MPI_BYTE, 0, all);
    return found;
}

}  // namespace imbrex
