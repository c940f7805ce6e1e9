// The guard of the tests that run models on a backend with a memory of its own: what it must catch, it
// catches.
#include "backend/testing/fake_device_backend.h"

#include <gmock/gmock.h>

#include <cstring>
#include <string>
#include <vector>

#include "backend/cpu/backend_test_util.h"
#include "backend/exec_context.h"
#include "backend/memory.h"

namespace triptych {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

class FakeDevice : public testing::Test {
 protected:
  TensorView staged(std::initializer_list<float> values) {
    TensorView out = cx.empty_host({1, static_cast<std::int64_t>(values.size())});
    std::copy(values.begin(), values.end(), out.f32());
    return out;
  }
  std::vector<float> read(const TensorView& x) {
    const TensorView y = cx.download(x);
    return {y.cf32(), y.cf32() + y.numel()};
  }

  test::FakeDeviceBackend device{backend(1)};
  Arena arena = make_arena(device);
  ExecContext cx{device, arena};
};

std::string message_of(const std::function<void()>& call) {
  try {
    call();
  } catch (const Error& error) {
    return error.what();
  }
  return "no error";
}

TEST_F(FakeDevice, UploadsComputesAndDownloads) {
  const TensorView a = cx.upload(staged({1, 2, 3}));
  const TensorView b = cx.upload(staged({10, 20, 30}));
  EXPECT_EQ(a.kind(), MemoryKind::kDevice);
  EXPECT_THAT(read(cx.add(a, b)), ElementsAre(11, 22, 33));
  EXPECT_EQ(cx.upload(a).data(), a.data()) << "it is there already";
}

TEST_F(FakeDevice, ColumnsAreDownloadedDense) {
  const TensorView x = cx.upload(staged({1, 2, 3, 4})).reshape({2, 2});
  EXPECT_THAT(read(x.cols(1, 2)), ElementsAre(2, 4));
}

TEST_F(FakeDevice, TensorsBesideTheArena) {
  Tensor host(DType::kF32, {1, 2});
  host.f32()[0] = 5;
  host.f32()[1] = 6;
  const Tensor x = upload(device, std::move(host));
  const Tensor y = copy_operand(device, x);
  EXPECT_EQ(y.view().kind(), MemoryKind::kDevice);
  EXPECT_NE(y.view().data(), x.view().data());
  EXPECT_THAT(read(y), ElementsAre(5, 6));
}

TEST_F(FakeDevice, OperandsInHostMemoryAreRefused) {
  const TensorView device_side = cx.upload(staged({1}));
  EXPECT_THAT(message_of([&] { cx.add(device_side, staged({1})); }), HasSubstr("upload it first"));
}

TEST_F(FakeDevice, TypedAccessToDeviceMemoryIsRefused) {
  const TensorView x = cx.upload(staged({1, 2}));
  EXPECT_THAT(message_of([&] { x.f32(); }), HasSubstr("download it first"));
  EXPECT_THAT(message_of([&] { x.reshape({2, 1}).rows(1, 2).cf32(); }), HasSubstr("download it first"));
  EXPECT_THAT(message_of([&] { Tensor::copy_of(x); }), HasSubstr("download it first"));
}

// Staging memory is read, and results are written, each time the plan runs.
TEST_F(FakeDevice, RecordedTransfers) {
  float next = 1;
  ASSERT_TRUE(device.begin_recording());
  const TensorView x = cx.empty_host({1, 2});
  cx.host([x, &next] { x.f32()[0] = x.f32()[1] = next; });
  const TensorView on_device = cx.upload(x);
  const TensorView y = cx.download(cx.add(on_device, on_device));
  const auto plan = device.end_recording();
  for (next = 1; next < 4; ++next) {
    plan->run();
    EXPECT_THAT(std::vector<float>(y.cf32(), y.cf32() + 2), ElementsAre(2 * next, 2 * next));
  }
}

// Where host and device share one memory nothing is copied.
TEST(Transfers, OfTheCpuBackendCopyNothing) {
  const auto cpu = backend(1);
  Arena arena = make_arena(*cpu);
  ExecContext cx(*cpu, arena);
  const TensorView x = cx.empty_host({1, 2});
  const std::size_t in_use = arena.bytes_in_use();
  EXPECT_EQ(cx.upload(x).data(), x.data());
  EXPECT_EQ(cx.download(x).data(), x.data());
  EXPECT_EQ(arena.bytes_in_use(), in_use);
  ASSERT_TRUE(cpu->begin_recording());
  cx.download(cx.upload(x));
  EXPECT_EQ(cpu->end_recording()->n_operations(), 0);
}

using FakeDeviceDeathTest = FakeDevice;
constexpr const char* kCaught = "host code touched device memory";

TEST_F(FakeDeviceDeathTest, ReadBehindTheBackendsBack) {
  const TensorView x = cx.upload(staged({1, 2}));
  EXPECT_DEATH(
      {
        volatile float to = 0;
        std::memcpy(const_cast<float*>(&to), x.data(), sizeof(float));
      },
      kCaught);
}

TEST_F(FakeDeviceDeathTest, WriteBehindTheBackendsBack) {
  const TensorView x = cx.empty({1, 2});
  EXPECT_DEATH(std::memset(x.data(), 0, x.size_bytes()), kCaught);
}

TEST_F(FakeDeviceDeathTest, HostComputationOfAPlanThatWritesAnOperand) {
  ASSERT_TRUE(device.begin_recording());
  const TensorView x = cx.empty({1, 2});
  cx.host([x] { std::memset(x.data(), 0, x.size_bytes()); });
  const auto plan = device.end_recording();
  EXPECT_DEATH(plan->run(), kCaught);
}

}  // namespace
}  // namespace triptych
