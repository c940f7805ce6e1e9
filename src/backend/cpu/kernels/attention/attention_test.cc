#include "backend/cpu/kernels/attention/attention.h"

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <utility>

#include "backend/cpu/kernels/test_util.h"
#include "base/half.h"

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

// By dot products and by tiles, in any company: sizes around vectors and tiles, windows, all types of rows.
TEST(Attention, BitsOfARowDoNotDependOnItsNeighbours) {
  for (const Isa isa : usable_isas()) {
    const AttentionKernels& kernels = attention_kernels(isa);
    for (const ElementType type : kElementTypes)
      for (const int head_dim : {1, 8, 24, 31, 64, 80, 128})
        for (const int window : {0, 30, 115}) {
          constexpr int kRows = 70;
          Operands operands({kRows, 250, head_dim, type, true, 16, 1.0F, window});
          const std::vector<float> whole = operands.run(kernels);
          const auto stride = static_cast<std::size_t>(head_dim + 1);
          for (const auto& [first, n] :
               {std::pair(0, 1), std::pair(3, 2), std::pair(40, 8), std::pair(69, 1), std::pair(37, 30)}) {
            const std::vector<float> some = operands.run(kernels, first, n);
            const auto begin = static_cast<std::size_t>(first) * stride;
            ASSERT_EQ(std::memcmp(whole.data() + begin, some.data() + begin,
                                  static_cast<std::size_t>(n) * stride * sizeof(float)),
                      0)
                << kernels.name << " type " << static_cast<int>(type) << " head_dim " << head_dim
                << " window " << window << " rows from " << first;
          }
        }
  }
}

// The same over rows of codes, with channels that pages take out, in exactly the memory that pages take.
TEST(Attention, CodedRowsAloneAndTogether) {
  constexpr int kRows = 50;
  constexpr int kKeys = 180;
  constexpr int kPageTokens = 16;
  constexpr int kPages = (kKeys + kPageTokens - 1) / kPageTokens;
  for (const Isa isa : usable_isas())
    for (const KvCode code : {KvCode::kInt8, KvCode::kFp8, KvCode::kInt4})
      for (const int head_dim : {8, 31, 64, 80, 128}) {
        const auto d = static_cast<std::size_t>(head_dim);
        const KvRowKernels& codec = kv_row_kernels(isa);
        const std::ptrdiff_t row_bytes = kv_row_bytes(code, head_dim);
        const std::ptrdiff_t offset_bytes =
            kv_max_offsets(head_dim) * static_cast<std::ptrdiff_t>(sizeof(KvOffset));
        const std::ptrdiff_t values_at = offset_bytes + kPageTokens * row_bytes;
        // A page's rows end where its memory does, so that sanitizers see what is read beyond.
        std::vector<std::vector<std::uint8_t>> memory;
        std::vector<const char*> page_data;
        std::vector<std::int32_t> pages;
        for (int p = 0; p < kPages; ++p) {
          const int n = std::min(kPageTokens, kKeys - p * kPageTokens);
          auto& page = memory.emplace_back(static_cast<std::size_t>(values_at + n * row_bytes));
          auto* offsets = reinterpret_cast<KvOffset*>(page.data());
          for (int t = 0; t < n; ++t) {
            std::vector<float> key = random_floats(d, static_cast<unsigned>(p * 100 + t));
            if (p % 3 != 0 && head_dim > 16) key[d / 2] += 90.0F;
            if (t == 0) codec.choose_offsets(head_dim, key.data(), offsets);
            for (std::ptrdiff_t i = 0; i < kv_max_offsets(head_dim); ++i)
              key[offsets[i].channel] -= bf16_to_f32(offsets[i].value);
            codec.encode(code, head_dim, key.data(), nullptr, page.data() + offset_bytes + t * row_bytes);
            const std::vector<float> value = random_floats(d, static_cast<unsigned>(5000 + p * 100 + t));
            codec.encode(code, head_dim, value.data(), nullptr, page.data() + values_at + t * row_bytes);
          }
          page_data.push_back(reinterpret_cast<const char*>(page.data()));
          pages.push_back(p);
        }
        const KeyValueRows kv = {nullptr,      nullptr,           row_bytes,        row_bytes,
                                 pages.data(), kPageTokens,       page_data.data(), offset_bytes,
                                 values_at,    ElementType::kF32, &codec,           code,
                                 offset_bytes};
        const std::vector<float> q = random_floats(kRows * d, 9);
        std::vector<const float*> q_rows;
        std::vector<std::int32_t> n_visible;
        for (int r = 0; r < kRows; ++r) {
          q_rows.push_back(q.data() + static_cast<std::size_t>(r) * d);
          n_visible.push_back(kKeys - kRows + r + 1);
        }
        const auto scratch = scratch_for(head_dim);
        const auto run = [&](const AttentionKernels& kernels, int first, int n) {
          std::vector<float> y(kRows * d);
          std::vector<float*> y_rows;
          for (int r = 0; r < kRows; ++r) y_rows.push_back(y.data() + static_cast<std::size_t>(r) * d);
          kernels.attention({n, head_dim, q_rows.data() + first, y_rows.data() + first,
                             n_visible.data() + first, 0.2F, kv, scratch.get()});
          return std::vector<float>(y.begin() + static_cast<std::ptrdiff_t>(first) * head_dim,
                                    y.begin() + static_cast<std::ptrdiff_t>(first + n) * head_dim);
        };
        const AttentionKernels& kernels = attention_kernels(isa);
        const std::vector<float> whole = run(kernels, 0, kRows);
        const std::vector<float> expected = run(kAttentionScalar, 0, kRows);
        for (std::size_t i = 0; i < whole.size(); ++i)
          ASSERT_NEAR(whole[i], expected[i], 2e-4) << kernels.name << " " << head_dim << " at " << i;
        for (const auto& [first, n] :
             {std::pair(0, 1), std::pair(7, 4), std::pair(20, 11), std::pair(49, 1)}) {
          const std::vector<float> some = run(kernels, first, n);
          ASSERT_EQ(std::memcmp(some.data(), whole.data() + static_cast<std::size_t>(first) * d,
                                some.size() * sizeof(float)),
                    0)
              << kernels.name << " code " << static_cast<int>(code) << " head_dim " << head_dim
              << " rows from " << first;
        }
      }
}

}  // namespace
}  // namespace triptych::kernels
