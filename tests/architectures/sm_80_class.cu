// architectures: 80 89 90a 100a 120a
// The features of every GPU from sm_80 on: cp.async into a ring of stages, ldmatrix, mma.sync, online softmax, masks,
// conversions, reductions. Each warp computes 16 rows of softmax(mask(Q K^T)) V, tile by tile.
#include <imbrex/imbrex.hpp>

using namespace imbrex;

struct small_attention {
    using query_tile = shared_tile<bf16, 64, 64>;
    using key_tile = shared_tile<bf16, 64, 64>;
    static constexpr int warps = 4;
    struct arguments {
        matrix_view<const bf16> q, k, v;
        matrix_view<float> out;
        float scale;
    };
    struct shared_memory {
        query_tile q;
        key_tile k[2], v[2];
    };
    template <class Block>
    IMBREX_KERNEL static void run(Block& block, const arguments& args, shared_memory& shared) {
        const int first = block.index().x;
        const int tiles = (args.k.rows() + 63) / 64;
        load(block, shared.q, args.q.tile<query_tile>(first, 0));
        const auto fetch = [&](int tile) {
            copy_async(block, shared.k[tile % 2], args.k.tile<key_tile>(tile, 0));
            copy_async(block, shared.v[tile % 2], args.v.tile<key_tile>(tile, 0));
            commit_copies(block);
        };
        fetch(0);
        for (int tile = 0; tile < tiles; ++tile) {
            wait_copies(block);
            block.sync();
            block.each_warp([&](warp& self) {
                warp_tile<float, 16, 64> scores;
                fill(self, scores, 0.0f);
                warp_tile<float, 16, 64> out;
                fill(self, out, 0.0f);
                mma_abt(self, scores, shared.q.subtile<16>(16 * self.index()), shared.k[tile % 2]);
                mask(self, scores,
                     element_mask::both<element_mask::causal, element_mask::bound>{{}, {args.q.rows(), args.k.rows()}},
                     64 * first + 16 * self.index(), 64 * tile, minus_infinity);
                softmax(self, scores, args.scale);
                warp_tile<bf16, 64, 64, register_layout::column_major> v;
                load(self, v, shared.v[tile % 2]);
                mma_ab(self, out, convert_to<bf16>(self, scores), v);
                store(self, args.out.at(64 * first + 16 * self.index(), 64 * tile), out);
            });
            block.sync();
            if (tile + 1 < tiles) fetch(tile + 1);
        }
    }
};

void launch_small_attention(const small_attention::arguments& arguments) {
    device::launch<small_attention>({1}, arguments);
}
