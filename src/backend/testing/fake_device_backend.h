// A backend with a memory of its own, as a device has, for tests: another backend computes, and its operands
// lie in DeviceMemory. Operands in host memory are refused; memory of the device outside of operations is
// protected.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <utility>

#include "backend/backend.h"
#include "backend/testing/device_memory.h"
#include "base/error.h"

namespace triptych::test {

class FakeDeviceBackend final : public Backend {
 public:
  explicit FakeDeviceBackend(std::unique_ptr<Backend> compute)
      : memory_(std::make_shared<DeviceMemory>()), compute_(std::move(compute)) {}

  std::string describe() const override { return "fake device on " + compute_->describe(); }
  int n_threads() const noexcept override { return compute_->n_threads(); }
  std::int64_t n_parallel_loops() const noexcept override { return compute_->n_parallel_loops(); }

  MemoryKind memory_kind() const noexcept override { return MemoryKind::kDevice; }
  Buffer allocate(std::size_t size_bytes, MemoryKind kind) override {
    return kind == MemoryKind::kHost ? Buffer::allocate(size_bytes)
                                     : DeviceMemory::allocate(memory_, size_bytes);
  }
  void upload(const TensorView& from, TensorView& to) override {
    check_on_host("upload", from);
    run([&](TensorView y) { compute_->upload(from, y); }, to);
  }
  void download(const TensorView& from, TensorView& to) override {
    check_on_host("download", to);
    run([&](const TensorView& x) { compute_->download(x, to); }, from);
  }

  // What is prepared stays with the backend that computes: nobody else has its address.
  std::unique_ptr<LinearWeight> prepare_linear(const LinearSpec& spec) override {
    return compute_->prepare_linear(spec);
  }
  std::unique_ptr<EmbeddingWeight> prepare_embedding(const WeightEntry& table) override {
    return compute_->prepare_embedding(table);
  }
  std::unique_ptr<KvCache> make_kv_cache(const KvGeometry& geometry) override {
    return compute_->make_kv_cache(geometry);
  }

  void begin_step(const StepShape& shape) override { compute_->begin_step(shape); }
  void end_step() noexcept override { compute_->end_step(); }
  bool begin_recording() override { return compute_->begin_recording(); }
  std::unique_ptr<StepPlan> end_recording() override {
    std::unique_ptr<StepPlan> plan = compute_->end_recording();
    return plan != nullptr ? std::make_unique<Plan>(memory_, std::move(plan)) : nullptr;
  }
  bool is_recording() const noexcept override { return compute_->is_recording(); }
  void record_host(std::function<void()> computation) override {
    compute_->record_host([memory = memory_, own = std::move(computation)] {
      const DeviceMemory::Closed closed(*memory);
      own();
    });
  }

  bool norms_rows(const LinearWeight& w) const noexcept override { return compute_->norms_rows(w); }
  bool writes_int8_for(const LinearWeight& w) const noexcept override { return compute_->writes_int8_for(w); }
  bool attends_in_int8(std::optional<KvDType> cache) const noexcept override {
    return compute_->attends_in_int8(cache);
  }
  void linear(const LinearWeight& w, const LinearInput& x, const LinearEpilogue& epilogue,
              TensorView& y) override {
    const LinearInput input = reach(x);
    const LinearEpilogue then = reach(epilogue);
    run([&](TensorView to) { compute_->linear(w, input, then, to); }, y);
  }
  bool gated_linear(const LinearWeight& w, const LinearInput& x, const LinearEpilogue& epilogue,
                    TensorView& y) override {
    const LinearInput input = reach(x);
    const LinearEpilogue then = reach(epilogue);
    bool done = false;
    run([&](TensorView to) { done = compute_->gated_linear(w, input, then, to); }, y);
    return done;
  }
  void all_reduce(TensorView& y) override {
    run([&](TensorView to) { compute_->all_reduce(to); }, y);
  }
  void embedding(const EmbeddingWeight& w, std::span<const std::int32_t> ids, TensorView& y) override {
    run([&](TensorView to) { compute_->embedding(w, ids, to); }, y);
  }

  void attention(const AttentionArgs& args, TensorView& y) override {
    AttentionArgs reached = args;
    for (TensorView* x : {&reached.q, &reached.k, &reached.v}) *x = reach(*x);
    run([&](TensorView to) { compute_->attention(reached, to); }, y);
  }
  void kv_append(KvCache& cache, int layer, const TensorView& k, const TensorView& v,
                 std::span<const std::int32_t> slots) override {
    run([&](const TensorView& a, const TensorView& b) { compute_->kv_append(cache, layer, a, b, slots); }, k,
        v);
  }
  void paged_attention(const KvCache& cache, int layer, std::span<const KvSequence> sequences,
                       const CacheAttention& how, const TensorView& q, TensorView& y) override {
    run([&](const TensorView& from,
            TensorView to) { compute_->paged_attention(cache, layer, sequences, how, from, to); },
        q, y);
  }
  void key_norms(const KvCache& cache, int layer, std::span<const std::int32_t> slots,
                 std::span<float> norms) override {
    compute_->key_norms(cache, layer, slots, norms);
  }
  void add_received_attention(const KvCache& cache, int layer, const KvSequence& s, const CacheAttention& how,
                              const TensorView& q, std::span<float> received) override {
    run(
        [&](const TensorView& from) {
          compute_->add_received_attention(cache, layer, s, how, from, received);
        },
        q);
  }
  void move_cached_tokens(KvCache& cache, std::span<const std::int32_t> from,
                          std::span<const std::int32_t> to) override {
    compute_->move_cached_tokens(cache, from, to);
  }

  void layer_norm(const TensorView& x, const TensorView& weight, const TensorView& bias, float eps,
                  TensorView& y) override {
    run([&](const TensorView& from, const TensorView& w, const TensorView& b,
            TensorView to) { compute_->layer_norm(from, w, b, eps, to); },
        x, weight, bias, y);
  }
  void rms_norm(const TensorView& x, const TensorView& weight, float eps, TensorView& y) override {
    run([&](const TensorView& from, const TensorView& w,
            TensorView to) { compute_->rms_norm(from, w, eps, to); },
        x, weight, y);
  }
  void rope(TensorView& x, const TensorView& cos, const TensorView& sin) override {
    run([&](TensorView to, const TensorView& c, const TensorView& s) { compute_->rope(to, c, s); }, x, cos,
        sin);
  }
  void activation(Activation kind, const TensorView& x, TensorView& y) override {
    run([&](const TensorView& from, TensorView to) { compute_->activation(kind, from, to); }, x, y);
  }
  void gated_activation(Activation kind, const TensorView& gate_up, TensorView& y) override {
    run([&](const TensorView& from, TensorView to) { compute_->gated_activation(kind, from, to); }, gate_up,
        y);
  }
  void add(const TensorView& a, const TensorView& b, TensorView& y) override {
    run([&](const TensorView& left, const TensorView& right,
            TensorView to) { compute_->add(left, right, to); },
        a, b, y);
  }
  void scale_rows(TensorView& x, std::span<const float> factors) override {
    run([&](TensorView to) { compute_->scale_rows(to, factors); }, x);
  }
  void copy(const TensorView& from, TensorView& to) override {
    run([&](const TensorView& x, TensorView y) { compute_->copy(x, y); }, from, to);
  }
  void gather_rows(const TensorView& src, std::span<const std::int32_t> rows, TensorView& dst) override {
    run([&](const TensorView& from, TensorView to) { compute_->gather_rows(from, rows, to); }, src, dst);
  }
  void scatter_rows(const TensorView& src, std::span<const std::int32_t> rows, TensorView& dst) override {
    run([&](const TensorView& from, TensorView to) { compute_->scatter_rows(from, rows, to); }, src, dst);
  }
  void patchify(const TensorView& picture, int patch_size_px, TensorView& rows) override {
    run([&](const TensorView& from, TensorView to) { compute_->patchify(from, patch_size_px, to); }, picture,
        rows);
  }

 private:
  class Plan final : public StepPlan {
   public:
    Plan(std::shared_ptr<DeviceMemory> memory, std::unique_ptr<StepPlan> plan)
        : memory_(std::move(memory)), plan_(std::move(plan)) {}
    void run() override {
      const DeviceMemory::Open open(*memory_);
      plan_->run();
    }
    std::int64_t n_operations() const noexcept override { return plan_->n_operations(); }

   private:
    std::shared_ptr<DeviceMemory> memory_;
    std::unique_ptr<StepPlan> plan_;
  };

  static void check_on_host(const char* operation, const TensorView& x) {
    TRIPTYCH_CHECK(x.kind() == MemoryKind::kHost, "[{}] tensor {} is on the device already", operation,
                   to_string(x.shape()));
  }
  // An operand as the backend that computes takes it.
  TensorView reach(const TensorView& x) const {
    if (x.data() == nullptr) return x;
    TRIPTYCH_CHECK(x.kind() == MemoryKind::kDevice && memory_->contains(x.data()),
                   "operand {} lies in host memory: upload it first", to_string(x.shape()));
    return x.as_kind(MemoryKind::kHost);
  }
  LinearInput reach(LinearInput x) const {
    for (TensorView* view : {&x.rows, &x.int8_scales, &x.weight, &x.bias}) *view = reach(*view);
    return x;
  }
  LinearEpilogue reach(LinearEpilogue epilogue) const {
    epilogue.residual = reach(epilogue.residual);
    epilogue.int8_scales = reach(epilogue.int8_scales);
    return epilogue;
  }
  template <typename Operation, typename... Operands>
  void run(const Operation& operation, const Operands&... operands) {
    const DeviceMemory::Open open(*memory_);
    operation(reach(operands)...);
  }

  std::shared_ptr<DeviceMemory> memory_;
  std::unique_ptr<Backend> compute_;
};

}  // namespace triptych::test
