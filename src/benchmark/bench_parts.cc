#include "benchmark/bench_parts.h"

#include <algorithm>
#include <cctype>
#include <mutex>
#include <set>

namespace triptych {
namespace {

// Profile zones keep pointers to their names for ever.
const char* kept_for_ever(std::string name) {
  static std::mutex mutex;
  static auto* names = new std::set<std::string>;
  const std::lock_guard lock(mutex);
  return names->insert(std::move(name)).first->c_str();
}

bool is_number(std::string_view word) {
  return !word.empty() && std::all_of(word.begin(), word.end(), [](char c) { return c >= '0' && c <= '9'; });
}

double elements(const TensorView& x) { return static_cast<double>(x.numel()); }

// Keys that the new tokens of a sequence see, all together, in windows of `window` tokens (0: none).
double visible_keys(const KvSequence& s, std::int32_t window) {
  const auto up_to = [window](double n) {  // of the first n tokens
    const double full = window > 0 ? std::min(n, static_cast<double>(window)) : n;
    return full * (full + 1) / 2 + (n - full) * full;
  };
  return up_to(static_cast<double>(s.n_context)) - up_to(static_cast<double>(s.n_context - s.n_rows));
}

}  // namespace

std::string part_name(std::string_view published_name) {
  std::vector<std::string_view> words;
  for (std::size_t begin = 0; begin <= published_name.size();) {
    const std::size_t end = std::min(published_name.find('.', begin), published_name.size());
    words.push_back(published_name.substr(begin, end - begin));
    begin = end + 1;
  }
  if (words.size() > 1 && words.back() == "weight") words.pop_back();
  std::size_t first = words.size() > 2 ? words.size() - 2 : 0;
  for (std::size_t i = 0; i + 1 < words.size(); ++i)
    if (is_number(words[i])) first = i + 1;
  std::string out;
  for (std::size_t i = first; i < words.size(); ++i) {
    if (i > first) out += '.';
    out += words[i];
  }
  return out;
}

PartRecorder::PartRecorder(const PartSizes& sizes, const Backend& backend) : backend_(backend) {
  for (const PartSizes::Linear& linear : sizes.linears)
    linears_.emplace(linear.weight, std::pair(linear.part, kept_for_ever(part_name(linear.name))));
}

std::string_view PartRecorder::stage() const noexcept {
  if (part_ == "language") return decoding_ ? "decode" : "prefill";
  return part_ == "projector" ? "projector" : "tower";
}

PartRecorder::Sum& PartRecorder::sum_of(std::string_view stage, std::string_view name) {
  for (Sum& sum : sums_)
    if (sum.stage == stage && sum.name == name) return sum;
  Sum& made = sums_.emplace_back();
  made.stage = stage;
  made.name = name;
  return made;
}

void PartRecorder::on_linear(const LinearWeight& weight, const TensorView& x) {
  const auto found = linears_.find(&weight);
  name_ = found == linears_.end() ? nullptr : found->second.second;
  if (found != linears_.end()) part_ = found->second.first;
  const double rows = static_cast<double>(x.dim(0));
  const auto n_in = static_cast<double>(weight.n_in());
  const auto n_out = static_cast<double>(weight.n_out());
  const double ops = 2.0 * rows * n_in * n_out;
  const bool int8 = weight.multiplies_int8();
  cost_ = {.flops = int8 ? 0 : ops,
           .int8_ops = int8 ? ops : 0,
           .bytes = static_cast<double>(weight.read_bytes()) + 4.0 * rows * (n_in + n_out)};
}

void PartRecorder::on_attention(const AttentionArgs& args) {
  double pairs = 0;
  for (std::size_t i = 1; i < args.cu_q.size(); ++i)
    pairs += static_cast<double>(args.cu_q[i] - args.cu_q[i - 1]) *
             static_cast<double>(args.cu_k[i] - args.cu_k[i - 1]);
  const double ops = 4.0 * pairs * static_cast<double>(args.q.dim(1) * args.q.dim(2));
  const bool int8 = backend_.attends_in_int8(std::nullopt);
  cost_ = {.flops = int8 ? 0 : ops,
           .int8_ops = int8 ? ops : 0,
           .bytes = 4.0 * (2.0 * elements(args.q) + elements(args.k) + elements(args.v))};
}

void PartRecorder::on_paged_attention(const KvCache& cache, std::span<const KvSequence> sequences,
                                      const CacheAttention& how, const TensorView& q) {
  part_ = "language";
  const KvGeometry& g = cache.geometry();
  const double bytes_per_token =
      static_cast<double>(cache.bytes()) / (static_cast<double>(g.n_layers) * g.n_pages * g.page_tokens);
  double pairs = 0;
  double context = 0;
  for (const KvSequence& s : sequences) {
    pairs += visible_keys(s, how.window);
    const std::int64_t read = std::int64_t{s.n_rows} + how.window - 1;  // of all rows' windows together
    context += static_cast<double>(how.window > 0 ? std::min<std::int64_t>(s.n_context, read) : s.n_context);
  }
  const double ops = 4.0 * pairs * static_cast<double>(q.dim(1) * q.dim(2));
  const auto n_sequences = static_cast<std::int64_t>(sequences.size());
  const bool int8 = q.dim(0) > n_sequences && backend_.attends_in_int8(g.dtype);  // prompts
  cost_ = {.flops = int8 ? 0 : ops,
           .int8_ops = int8 ? ops : 0,
           .bytes = context * bytes_per_token + 8.0 * elements(q)};
}

void PartRecorder::on_begin(const char* operation) {
  if (std::string_view(operation) == "embedding") part_ = "language";
  const char* name = name_ != nullptr ? name_ : operation;
  open_ = &sum_of(stage(), name);
  zone_.emplace(name);
  start_ns_ = profile_clock_ns();
}

void PartRecorder::on_end() {
  if (open_ == nullptr) return;
  open_->ns += profile_clock_ns() - start_ns_;
  zone_.reset();
  open_->count += 1;
  open_->cost += cost_;
  open_ = nullptr;
  name_ = nullptr;
  cost_ = {};
}

std::vector<PartTiming> PartRecorder::parts(int n_prompts, int n_decoded) const {
  std::vector<PartTiming> out;
  for (const char* stage : {"tower", "projector", "prefill", "decode"}) {
    const int n = std::string_view(stage) == "decode" ? n_decoded : n_prompts;
    if (n < 1) continue;
    for (const Sum& sum : sums_) {
      if (sum.stage != stage) continue;
      out.push_back(
          {sum.stage,
           sum.name,
           static_cast<double>(sum.count) / n,
           static_cast<double>(sum.ns) / 1e6 / n,
           {.flops = sum.cost.flops / n, .int8_ops = sum.cost.int8_ops / n, .bytes = sum.cost.bytes / n}});
    }
  }
  return out;
}

}  // namespace triptych
