#include "backend/cpu/kernels/attention/attention.h"

#include <algorithm>
#include <cstdlib>
#include <memory>
#include <utility>

#include "backend/cpu/kernels/test_util.h"

namespace triptych::kernels {
namespace {

struct AlignedFree {
  void operator()(float* p) const { std::free(p); }
};
std::unique_ptr<float, AlignedFree> scratch_for(int head_dim) {
  const std::size_t n_bytes = static_cast<std::size_t>(attention_scratch_floats(head_dim)) * sizeof(float);
  return std::unique_ptr<float, AlignedFree>(
      static_cast<float*>(std::aligned_alloc(64, (n_bytes + 63) / 64 * 64)));
}

struct Problem {
  int n_rows;
  int n_keys;
  int head_dim;
  ElementType type = ElementType::kF32;
  bool causal = false;
  int page_tokens = 0;  // 0: plain
  float sigma = 1.0F;
  int window = 0;  // keys that a row sees at most, its last; 0: all
};

// Keys and values of one head, in pages in shuffled order when asked.
class Operands {
 public:
  explicit Operands(const Problem& p)
      : p_(p),
        q_(random_floats(static_cast<std::size_t>(p.n_rows * (p.head_dim + 3)), 1, p.sigma)),
        y_(static_cast<std::size_t>(p.n_rows * (p.head_dim + 1)), -77.0F) {
    const int page_tokens = p.page_tokens > 0 ? p.page_tokens : std::max(p.n_keys, 1);
    const int n_pages = (p.n_keys + page_tokens - 1) / page_tokens + 1;
    const std::size_t n = static_cast<std::size_t>(n_pages * page_tokens * p.head_dim);
    k_ = std::make_unique<StoredArray>(p.type, random_floats(n, 2, p.sigma), 2);
    v_ = std::make_unique<StoredArray>(p.type, random_floats(n, 3), 2);
    for (int i = 0; i < n_pages; ++i) pages_.push_back((i * 7 + 3) % n_pages);
    std::sort(pages_.begin(), pages_.end(),
              [n_pages](int a, int b) { return (a * 5) % n_pages < (b * 5) % n_pages; });
    const std::ptrdiff_t row_bytes = p.head_dim * static_cast<std::ptrdiff_t>(element_bytes(p.type));
    kv_ = {k_->data(),
           v_->data(),
           row_bytes,
           row_bytes,
           p.page_tokens > 0 ? pages_.data() : nullptr,
           page_tokens,
           nullptr,
           0,
           reinterpret_cast<std::intptr_t>(v_->data()) - reinterpret_cast<std::intptr_t>(k_->data()),
           p.type};
    for (int i = 0; i < n_pages; ++i) page_data_.push_back(k_->data() + i * page_tokens * row_bytes);
    kv_.page_data = page_data_.data();
    for (int r = 0; r < p.n_rows; ++r) {
      q_rows_.push_back(q_.data() + r * (p.head_dim + 3));
      y_rows_.push_back(y_.data() + r * (p.head_dim + 1));
      n_visible_.push_back(p.causal ? std::max(0, p.n_keys - p.n_rows + r + 1) : p.n_keys);
      first_visible_.push_back(std::max(0, n_visible_.back() - p.window));
    }
    scratch_ = scratch_for(p.head_dim);
  }

  std::vector<float> run(const AttentionKernels& kernels, int first = 0, int n = -1) {
    std::fill(y_.begin(), y_.end(), -77.0F);
    const float scale = 1.0F / std::sqrt(static_cast<float>(p_.head_dim));
    kernels.attention({n < 0 ? p_.n_rows : n, p_.head_dim, q_rows_.data() + first, y_rows_.data() + first,
                       n_visible_.data() + first, scale, kv_, scratch_.get(),
                       p_.window > 0 ? first_visible_.data() + first : nullptr});
    return y_;
  }
  StoredArray& keys() { return *k_; }
  StoredArray& values() { return *v_; }
  std::vector<float>& queries() { return q_; }
  std::vector<std::int32_t>& n_visible() { return n_visible_; }
  const Problem& problem() const { return p_; }

 private:
  Problem p_;
  std::vector<float> q_;
  std::vector<float> y_;
  std::unique_ptr<StoredArray> k_;
  std::unique_ptr<StoredArray> v_;
  std::vector<std::int32_t> pages_;
  std::vector<const char*> page_data_;
  KeyValueRows kv_{};
  std::vector<const float*> q_rows_;
  std::vector<float*> y_rows_;
  std::vector<std::int32_t> n_visible_;
  std::vector<std::int32_t> first_visible_;
  std::unique_ptr<float, AlignedFree> scratch_;
};

// A score is a sum of head_dim products of size up to sigma^2: its error e = head_dim * eps * |q||k| * scale
// enters the weights as a factor 1 + e. The outputs are averages of values of size about 1 (at most 5).
void check(const AttentionKernels& kernels, const Problem& p) {
  Operands operands(p);
  const std::vector<float> expected = operands.run(kAttentionScalar);
  const std::vector<float> got = operands.run(kernels);
  const double score = static_cast<double>(p.sigma * p.sigma) * std::sqrt(p.head_dim);
  const double tolerance = 5 * (p.head_dim * 0x1p-24 * score + 32 * 0x1p-24);
  for (std::size_t i = 0; i < expected.size(); ++i)
    ASSERT_NEAR(static_cast<double>(got[i]), static_cast<double>(expected[i]), tolerance)
        << kernels.name << " rows=" << p.n_rows << " keys=" << p.n_keys << " head_dim=" << p.head_dim
        << " type=" << static_cast<int>(p.type) << " causal=" << p.causal << " page=" << p.page_tokens
        << " window=" << p.window << " at " << i;
}

TEST(Attention, MatchesTheOracle) {
  for (const Isa isa : usable_isas()) {
    const AttentionKernels& kernels = attention_kernels(isa);
    for (const int head_dim : {1, 8, 24, 31, 64, 80, 88, 104, 128})
      for (const int n_rows : {1, 3, 8, 9, 33})
        for (const int n_keys : {1, 14, 57, 113, 230})
          for (const bool causal : {false, true})
            check(kernels, {n_rows, n_keys, head_dim, ElementType::kF32, causal});
    for (const int n_rows : {31, 32, 64, 65, 127, 128})
      check(kernels, {n_rows, 240, 64, ElementType::kF32, true});
  }
}

TEST(Attention, PagesAndTypes) {
  for (const Isa isa : usable_isas())
    for (const ElementType type : kElementTypes)
      for (const int page_tokens : {1, 16, 37, 64})
        for (const int n_rows : {1, 4, 40})
          for (const int n_keys : {40, 111, 300})
            for (const int head_dim : {24, 128})
              check(attention_kernels(isa), {n_rows, n_keys, head_dim, type, true, page_tokens});
}

// Windows that begin in the first block of keys, at its end, in later ones, and that see one key.
TEST(Attention, Windows) {
  for (const Isa isa : usable_isas())
    for (const int window : {1, 2, 50, 111, 112, 113, 230, 500})
      for (const int n_rows : {1, 3, 8, 9, 33, 128})
        for (const int n_keys : {40, 112, 240, 480})
          for (const bool causal : {false, true})
            check(attention_kernels(isa), {n_rows, n_keys, 40, ElementType::kF32, causal, 16, 1.0F, window});
}

TEST(Attention, HugeScoresAreStable) {
  for (const Isa isa : usable_isas()) {
    for (const int n_rows : {2, 20}) {
      Operands operands({n_rows, 150, 64, ElementType::kF32, false, 0, 3000.0F});
      const std::vector<float> expected = operands.run(kAttentionScalar);
      const std::vector<float> got = operands.run(attention_kernels(isa));
      // Scores of 1e7 with steps of 1: the largest key takes all the weight.
      for (std::size_t i = 0; i < got.size(); ++i)
        ASSERT_NEAR(static_cast<double>(got[i]), static_cast<double>(expected[i]), 1e-5);
    }
  }
}

TEST(Attention, RowsThatSeeNothingAreZero) {
  for (const Isa isa : usable_isas()) {
    for (const int n_rows : {1, 8, 9, 100}) {
      Operands operands({n_rows, 130, 40});
      for (int r = 0; r < n_rows; r += 2) operands.n_visible()[static_cast<std::size_t>(r)] = 0;
      const std::vector<float> expected = operands.run(kAttentionScalar);
      const std::vector<float> got = operands.run(attention_kernels(isa));
      for (int r = 0; r < n_rows; ++r) {
        for (int d = 0; d < 40; ++d) {
          const std::size_t at = static_cast<std::size_t>(r * 41 + d);
          if (r % 2 == 0) {
            ASSERT_EQ(got[at], 0.0F);
          } else {
            ASSERT_NEAR(static_cast<double>(got[at]), static_cast<double>(expected[at]), 1e-4);
          }
        }
      }
    }
  }
}

TEST(Attention, NanStaysInItsRowAndInfiniteScoresFollowTheFormula) {
  for (const Isa isa : usable_isas()) {
    for (const int n_rows : {4, 40}) {
      Operands operands({n_rows, 60, 32});
      operands.queries()[35 + 5] = NAN;                                                              // row 1
      for (int d = 0; d < 32; ++d) operands.queries()[static_cast<std::size_t>(2 * 35 + d)] = 0.0F;  // row 2
      const std::vector<float> got = operands.run(attention_kernels(isa));
      for (int r = 0; r < n_rows; ++r)
        for (int d = 0; d < 32; ++d)
          ASSERT_EQ(std::isnan(got[static_cast<std::size_t>(r * 33 + d)]), r == 1)
              << attention_kernels(isa).name << r;
    }
  }
}

TEST(Attention, BitsOfARowDoNotDependOnItsNeighbours) {
  for (const Isa isa : usable_isas()) {
    for (const auto& [part, window] : {std::pair(kAttentionFewRows, 0), std::pair(kAttentionMaxRows, 0),
                                       std::pair(kAttentionFewRows, 115), std::pair(kAttentionMaxRows, 30)}) {
      const int n_rows = part;
      Operands operands({n_rows, 250, 64, ElementType::kF16, true, 16, 1.0F, window});
      const std::vector<float> whole = operands.run(attention_kernels(isa));
      const int first = part == kAttentionFewRows ? 3 : 37;
      const int n = part == kAttentionFewRows ? 2 : 50;
      const std::vector<float> some = operands.run(attention_kernels(isa), first, n);
      for (std::size_t i = static_cast<std::size_t>(first * 65);
           i < static_cast<std::size_t>((first + n) * 65); ++i)
        ASSERT_EQ(whole[i], some[i]) << attention_kernels(isa).name;
    }
  }
}

}  // namespace
}  // namespace triptych::kernels
