/* Sums over ranks on one GPU, by the tree that comm_all_reduce promises: the sum of ranks
 * [lo, hi) is that of [lo, mid) joined to that of [mid, hi), mid = lo + (hi - lo) / 2.
 */
#ifndef GPU_TREE_CUH
#define GPU_TREE_CUH

/* Depths of the two trees that kernels are compiled with: 8 and 1024 ranks. */
enum { TREE_SMALL = 3, TREE_LARGE = 10 };

/* See below. */
template <class T, int DEPTH, class L>
static __device__ __forceinline__ T tree_join(const L &leaf, int lo, int hi);

/* The deep levels are calls, so that the code of 1024 leaves is not laid out in full. */
template <class T, int DEPTH, class L>
static __device__ __noinline__ T tree_call(const L &leaf, int lo, int hi)
{
    return tree_join<T, DEPTH, L>(leaf, lo, hi);
}

/* leaf(i) gives the T of rank i; T::join(a, b) joins two. hi - lo is at most 2^DEPTH. */
template <class T, int DEPTH, class L> static __device__ T tree_join(const L &leaf, int lo, int hi)
{
    if constexpr (DEPTH == 0) {
        return leaf(lo);
    } else {
        int mid = lo + (hi - lo) / 2;

        if (hi - lo == 1)
            return leaf(lo);
        if constexpr (DEPTH > TREE_SMALL) {
            T a = tree_call<T, DEPTH - 1, L>(leaf, lo, mid);

            return T::join(a, tree_call<T, DEPTH - 1, L>(leaf, mid, hi));
        } else {
            T a = tree_join<T, DEPTH - 1, L>(leaf, lo, mid);

            return T::join(a, tree_join<T, DEPTH - 1, L>(leaf, mid, hi));
        }
    }
}

#endif
