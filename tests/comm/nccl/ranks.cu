// Test program of nccl_transport: one process is one rank; run_ranks.py starts them.
//
//     imbrex_nccl_ranks exchanges                          valid send/recv groups and all-gathers, with checked results
//     imbrex_nccl_ranks is_busy - <timeout in ms>          local work that takes longer than the timeout
//     imbrex_nccl_ranks <fault> <rank> <timeout in ms>     a ring in which this rank commits the fault
//
// Returns 0 on success, 1 on failure, 3 after the expected communication error, 9 from the rank at fault, and 77
// without a GPU.
#include <imbrex/comm/nccl_transport.hpp>
#include <imbrex/hw/pinned_staging.hpp>
#include <imbrex/hw/world_copy.hpp>
#include <imbrex/hw/world_memory.hpp>
#include <imbrex/hw/world_stream.hpp>

#include <unistd.h>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <string>
#include <thread>
#include <vector>

using namespace imbrex;

namespace {

void check(bool holds, const std::string& what) {
    if (!holds) throw error("wrong: " + what);
}

// Contents of message `message` of rank `sender`.
unsigned char byte_of(int sender, int message, std::size_t index) {
    return static_cast<unsigned char>(index * 131 + (index >> 8) * 17 + sender * 59 + message * 101 + 7);
}

// A device buffer with a host copy.
class message_buffer {
  public:
    explicit message_buffer(std::size_t bytes) : bytes_(world::device, bytes) {}

    std::size_t count() const { return bytes_.bytes(); }
    unsigned char* there() const { return bytes_.at<unsigned char>(); }

    // Both are enqueued in the stream.
    void fill(int sender, int message, void* stream) {
        for (std::size_t i = 0; i < count(); ++i) bytes_.host_pointer<unsigned char>()[i] = byte_of(sender, message, i);
        bytes_.upload(count(), stream);
    }
    void download(void* stream) const { bytes_.download(count(), stream); }
    // Checks the host copy.
    void require_message(int sender, int message, const std::string& where) const {
        for (std::size_t i = 0; i < count(); ++i) {
            check(bytes_.host_pointer<unsigned char>()[i] == byte_of(sender, message, i),
                  str_cat(where, ": byte ", i, " of ", count(), " of message ", message, " of rank ", sender));
        }
    }

  private:
    pinned_staging bytes_;
};

// Slow work in the stream: a missing wait shows.
void add_delay(void* stream) {
    const auto nap = [](void*) { std::this_thread::sleep_for(std::chrono::milliseconds(20)); };
    detail::require_success(cudaLaunchHostFunc(static_cast<cudaStream_t>(stream), nap, nullptr), "cudaLaunchHostFunc");
}

class ring {
  public:
    explicit ring(nccl_transport& all) : comm(all), stream_(world::device) {}

    nccl_transport& comm;
    void* stream() const { return stream_.get(); }
    int rank() const { return comm.rank(); }
    int ranks() const { return comm.ranks(); }
    int next() const { return (rank() + 1) % ranks(); }
    int before() const { return (rank() + ranks() - 1) % ranks(); }

    send_recv_request pass(int step, const message_buffer& ours, const message_buffer& theirs) {
        return comm.start({.step = step,
                           .sends = {{next(), ours.there(), ours.count()}},
                           .receives = {{before(), theirs.there(), theirs.count()}}},
                          stream());
    }

  private:
    world_stream stream_;
};

// Send buffers are filled late and receive buffers fetched at once: only the stream orders them.
void test_sizes(ring& all) {
    int message = 0;
    for (const std::size_t bytes : {1, 3, 17, 1000, 4097, 65536, 1048583, 5000001}) {
        message_buffer ours(bytes), theirs(bytes);
        add_delay(all.stream());
        ours.fill(all.rank(), message, all.stream());
        all.comm.wait(all.pass(message, ours, theirs), all.stream());
        theirs.download(all.stream());
        all.comm.synchronise(all.stream());
        theirs.require_message(all.before(), message++, "sizes");
    }
}

// Many groups in flight, waited for in reverse order.
void test_many_in_flight(ring& all) {
    std::deque<message_buffer> ours, theirs;
    std::vector<send_recv_request> requests;
    for (int message = 0; message < 64; ++message) {
        const std::size_t bytes = 1 + message * message * 977 % 70000;
        ours.emplace_back(bytes).fill(all.rank(), message, all.stream());
        theirs.emplace_back(bytes);
    }
    for (int message = 0; message < 64; ++message) {
        requests.push_back(all.pass(message, ours[message], theirs[message]));
        check(message == 0 || requests[message] == requests[message - 1] + 1, "requests are numbered consecutively");
    }
    for (int message = 63; message >= 0; --message) {
        all.comm.wait(requests[message], all.stream());
        theirs[message].download(all.stream());
    }
    all.comm.synchronise(all.stream());
    for (int message = 0; message < 64; ++message) theirs[message].require_message(all.before(), message, "many");
    all.comm.wait(requests.front(), all.stream());  // a group that is long done
}

// Three messages between every two ranks in one group, the second one empty: they arrive in order.
void test_order_of_messages(ring& all) {
    std::deque<message_buffer> ours, theirs;
    send_recv_group one{.step = 7};
    for (int other = 0; other < all.ranks(); ++other) {
        if (other == all.rank()) continue;
        for (int message = 0; message < 3; ++message) {
            const std::size_t bytes = message == 1 ? 0 : 3001;
            ours.emplace_back(bytes).fill(all.rank(), 10 * other + message, all.stream());
            one.sends.push_back({other, ours.back().there(), bytes});
            one.receives.push_back({other, theirs.emplace_back(bytes).there(), bytes});
        }
    }
    all.comm.wait(all.comm.start(one, all.stream()), all.stream());
    for (const message_buffer& buffer : theirs) buffer.download(all.stream());
    all.comm.synchronise(all.stream());
    for (std::size_t i = 0; i < theirs.size(); ++i) {
        theirs[i].require_message(one.receives[i].from, 10 * all.rank() + static_cast<int>(i % 3), "order");
    }
    all.comm.wait(all.comm.start({.step = 8}, all.stream()), all.stream());  // an empty group
    all.comm.synchronise(all.stream());
}

// As in ring attention: two buffers, one sent on while the other is filled, without host synchronisation.
void test_ring_rotation(ring& all) {
    constexpr std::size_t bytes = 300007;
    const int steps = 5 * all.ranks();
    message_buffer buffers[2] = {message_buffer(bytes), message_buffer(bytes)};
    std::deque<message_buffer> seen;
    for (int step = 0; step < steps; ++step) seen.emplace_back(bytes);
    buffers[0].fill(all.rank(), 0, all.stream());
    for (int step = 0; step < steps; ++step) {
        const message_buffer& here = buffers[step % 2];
        const send_recv_request request = all.pass(step, here, buffers[(step + 1) % 2]);
        copy_bytes(world::device, seen[step].there(), here.there(), bytes, all.stream());
        all.comm.wait(request, all.stream());
    }
    for (const message_buffer& one : seen) one.download(all.stream());
    all.comm.synchronise(all.stream());
    for (int step = 0; step < steps; ++step) {
        const int from = (all.rank() + steps - step) % all.ranks();
        seen[step].require_message(from, 0, str_cat("round, step ", step));
    }
}

void test_gather(ring& all) {
    for (const std::size_t bytes : {0, 1, 7, 1016, 1017, 5000}) {
        std::vector<unsigned char> mine(bytes), gathered(bytes * all.ranks());
        for (std::size_t i = 0; i < bytes; ++i) mine[i] = byte_of(all.rank(), 1, i);
        all.comm.all_gather(mine.data(), gathered.data(), bytes);
        for (std::size_t i = 0; i < gathered.size(); ++i) {
            check(gathered[i] == byte_of(static_cast<int>(i / bytes), 1, i % bytes), str_cat("gather of ", bytes));
        }
    }
}

template <class Call>
std::string error_message_of(const Call& call) {
    try {
        call();
    } catch (const error& refused) {
        return refused.what();
    }
    return "no error";
}

void test_invalid_arguments(ring& all) {
    const int rank = all.rank(), ranks = all.ranks();
    for (const int other : {rank, ranks, -1}) {
        check(error_message_of([&] {
                  all.comm.start({.sends = {{other, nullptr, 1}}});
              }) == str_cat("sends.to: ", other, "; rank ", rank, " of ", ranks,
                            " can send to and receive from the other ranks, 0 to ", ranks - 1),
              "an invalid peer");
    }
    const send_recv_request next = all.comm.start({});
    check(error_message_of([&] { all.comm.wait(next + 1); }) ==
              str_cat("request: ", next + 1, "; rank ", rank, " has started ", next + 1, " send/recv groups"),
          "an unknown request");
}

// A second transport next to the first, with an id that rank 0 created and distributed.
void test_given_id(ring& all) {
    ncclUniqueId mine = {};
    if (all.rank() == 0) check(ncclGetUniqueId(&mine) == ncclSuccess, "ncclGetUniqueId");
    std::vector<char> ids(sizeof mine *
                          all.ranks());  // as bytes, since nvcc fails over a vector of a type without a name
    all.comm.all_gather(&mine, ids.data(), sizeof mine);
    std::memcpy(&mine, ids.data(), sizeof mine);
    nccl_transport second(all.rank(), all.ranks(), mine);
    ring again(second);
    test_gather(again);
}

// Local work does not count towards the timeout, before the two ranks are connected and after.
void test_long_work(ring& all) {
    message_buffer ours(1000), theirs(1000);
    for (int step = 0; step < 2; ++step) {
        for (int naps = 0; naps < 100; ++naps) add_delay(all.stream());
        ours.fill(all.rank(), step, all.stream());
        all.comm.wait(all.pass(step, ours, theirs), all.stream());
        theirs.download(all.stream());
        for (int naps = 0; naps < 100; ++naps) add_delay(all.stream());
        all.comm.synchronise(all.stream());
        theirs.require_message(all.before(), step, "long work");
    }
}

void print_times(ring& all) {
    using clock = std::chrono::steady_clock;
    const auto microseconds = [](clock::duration time) {
        return std::chrono::duration<double, std::micro>(time).count();
    };
    message_buffer small[2] = {message_buffer(1024), message_buffer(1024)};
    message_buffer large[2] = {message_buffer(64 << 20), message_buffer(64 << 20)};
    all.comm.all_gather(nullptr, nullptr, 0);
    const auto begin = clock::now();
    clock::duration started{};
    for (int step = 0; step < 200; ++step) {
        const auto before = clock::now();
        const send_recv_request request = all.pass(step, small[0], small[1]);
        started += clock::now() - before;
        all.comm.wait(request, all.stream());
    }
    all.comm.synchronise(all.stream());
    const auto small_ones = clock::now();
    for (int step = 0; step < 4; ++step) all.comm.wait(all.pass(step, large[0], large[1]), all.stream());
    all.comm.synchronise(all.stream());
    std::printf("start() takes the host %.0f us; a step of 1 KiB takes %.0f us, one of 64 MiB %.1f ms\n",
                microseconds(started) / 200, microseconds(small_ones - begin) / 200,
                microseconds(clock::now() - small_ones) / 4000);
}

constexpr int fault_steps = 10, fault_step = 3;
constexpr std::size_t fault_bytes = 8 << 20;

// What the rank at fault does instead of a step. A rank that throws leaves a group in flight.
void commit_fault(const std::string& fault, ring& all, const message_buffer& theirs) {
    all.comm.synchronise(all.stream());
    std::this_thread::sleep_for(std::chrono::milliseconds(500));  // until NCCL has flushed earlier sends
    std::printf("%s in step %d\n", fault.c_str(), fault_step);
    std::fflush(stdout);
    if (fault == "dies") _exit(9);
    if (fault == "hangs") std::this_thread::sleep_for(std::chrono::hours(1));
    all.comm.start({.step = fault_step, .receives = {{all.before(), theirs.there(), theirs.count()}}}, all.stream());
    throw error("this rank gives up");
}

void run_ring_with_fault(const std::string& fault, bool at_fault, ring& all) {
    std::deque<message_buffer> ours, theirs;
    for (int i = 0; i < 2; ++i) {
        ours.emplace_back(fault_bytes).fill(all.rank(), i, all.stream());
        theirs.emplace_back(fault_bytes);
    }
    const auto begin = std::chrono::steady_clock::now();
    std::string failure = "nothing failed";
    try {
        if (fault == "gathers_more") {
            const std::vector<char> mine(20);
            std::vector<char> gathered(20 * all.ranks());
            all.comm.all_gather(mine.data(), gathered.data(), at_fault ? 20 : 12);
        }
        for (int step = 0; step < fault_steps; ++step) {
            const bool now = at_fault && step == fault_step;
            if (now && (fault == "dies" || fault == "hangs" || fault == "throws")) commit_fault(fault, all, theirs[0]);
            const bool less = fault == "sends_less" && at_fault && step == fault_steps - 1;
            all.comm.wait(all.comm.start({.step = step,
                                          .sends = {{all.next(), ours[step % 2].there(), fault_bytes / (less ? 2 : 1)}},
                                          .receives = {{all.before(), theirs[step % 2].there(), fault_bytes}}},
                                         all.stream()),
                          all.stream());
        }
        all.comm.synchronise(all.stream());
    } catch (const communication_error& caught) {
        failure = caught.what();
        std::printf("caught after %.1f s, suspect rank %d in step %d: %s\n",
                    std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count(), caught.rank(),
                    caught.step(), caught.what());
    }
    if (failure == "nothing failed") return;

    const auto same = [&](const std::string& again) { check(again == failure, "another error later: " + again); };
    same(error_message_of([&] { all.comm.start({}); }));
    same(error_message_of([&] { all.comm.wait(0); }));
    same(error_message_of([&] { all.comm.synchronise(); }));
    same(error_message_of([&] { all.comm.all_gather(nullptr, nullptr, 0); }));
    // The device is idle, and send buffers are unchanged.
    for (const message_buffer& one : ours) one.download(all.stream());
    detail::require_success(cudaDeviceSynchronize(), "the device after an error");
    for (int i = 0; i < 2; ++i) ours[i].require_message(all.rank(), i, "sent");
    throw communication_error(0, 0, failure);
}

void run_rank(const std::string& what, int rank_at_fault, int timeout) {
    const rank_environment who = read_rank_environment();
    if (what == "never_comes" && who.rank == rank_at_fault) return;
    detail::require_success(cudaSetDevice(who.local_rank.value_or(0)), "cudaSetDevice");
    nccl_options options;
    options.timeout = std::chrono::milliseconds(timeout);
    if (what == "never_comes") options.initialisation_timeout = options.timeout;
    const auto begin = std::chrono::steady_clock::now();
    try {
        nccl_transport comm(who, options);
        std::printf("rank %d of %d is initialised after %.1f s\n", comm.rank(), comm.ranks(),
                    std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count());
        check(std::getenv("NCCL_COMM_ID") == nullptr, "NCCL_COMM_ID is still set");
        ring all(comm);
        std::vector<void (*)(ring&)> tests = {test_gather};
        if (what == "is_busy") {
            tests = {test_long_work};
        } else if (what != "exchanges") {
            return run_ring_with_fault(what, who.rank == rank_at_fault, all);
        } else if (comm.ranks() > 1) {
            tests = {test_gather,         test_sizes,
                     test_many_in_flight, test_order_of_messages,
                     test_ring_rotation,  test_invalid_arguments,
                     test_given_id,       print_times};
        }
        for (const auto test : tests) test(all);
    } catch (const communication_error& caught) {
        if (what == "never_comes") std::printf("caught: %s\n", caught.what());
        throw;
    }
}

}  // namespace

int main(int count, char** arguments) {
    if (!device_available()) {
        std::printf("skipped: no GPU\n");
        return 77;
    }
    const std::string what = count > 1 ? arguments[1] : "exchanges";
    const int rank_at_fault = count > 2 ? std::atoi(arguments[2]) : -1;
    const int timeout = count > 3 ? std::atoi(arguments[3]) : 30000;
    try {
        run_rank(what, rank_at_fault, timeout);
        std::printf("ok\n");
        return 0;
    } catch (const communication_error& caught) {
        if (what != "exchanges" && what != "is_busy") return 3;
        std::printf("%s\n", caught.what());
    } catch (const std::exception& problem) {
        std::printf("%s\n", problem.what());
        if (what == "throws" && std::string(problem.what()) == "this rank gives up") return 9;
    }
    return 1;
}
