// Saved sessions: what is written is read, and what is wrong with a file is said.
#include "engine/session_file.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <numeric>

#include <nlohmann/json.hpp>

#include "base/error.h"
#include "engine/block_pool.h"
#include "io/mapped_file.h"
#include "io/test_files.h"

namespace triptych {
namespace {

using testing::HasSubstr;

constexpr std::size_t kPageBytes = 48;

SessionModel model() {
  return {.architecture = "Some",
          .fingerprint = {1, 2, 3, 4},
          .n_position_axes = 3,
          .kv = {.n_layers = 2,
                 .n_kv_heads = 3,
                 .head_dim = 4,
                 .page_tokens = kBlockTokens,
                 .dtype = KvDType::kInt8},
          .page_bytes = kPageBytes};
}

Image image(int width_px, int height_px, std::uint8_t first) {
  Image out{width_px, height_px, {}};
  out.rgb.resize(out.row_bytes() * static_cast<std::size_t>(height_px));
  std::iota(out.rgb.begin(), out.rgb.end(), first);
  return out;
}

// A conversation about a picture and a video, 70 tokens of it computed.
SessionContent content() {
  SessionContent out{.model = model(), .conversation = {}, .frame_sizes = {}, .tokens = {}, .positions = {}};
  ChatMessage user;
  user.role = "user";
  user.parts = {{ContentPart::Kind::kImage, ""},
                {ContentPart::Kind::kVideo, ""},
                {ContentPart::Kind::kText, "What is \"it\"?\n東"}};
  out.conversation.messages = {ChatMessage::text("system", "Be brief."), user,
                               ChatMessage::text("assistant", "A cat.")};
  out.conversation.media.resize(2);
  out.conversation.media[0].frames.push_back(image(5, 3, 1));
  MediaInput& video = out.conversation.media[1];
  video.is_video = true;
  video.frames_per_s = 2.5;
  video.frame_times_s = {0.1, 0.7};
  video.name = "v.gif";
  out.conversation.media[1].frames.push_back(image(2, 2, 50));
  out.conversation.media[1].frames.push_back(image(2, 2, 90));
  out.frame_sizes = {{5, 3, 1}, {2, 2, 2}};
  out.conversation.media_options = {.min_pixels = 7, .max_pixels = 900};
  out.tokens.resize(70);
  std::iota(out.tokens.begin(), out.tokens.end(), 1000);
  out.positions.resize(210);
  std::iota(out.positions.begin(), out.positions.end(), -3);
  return out;
}

void fill_page(std::size_t page, std::span<std::byte> to) {
  for (std::size_t i = 0; i < to.size(); ++i) to[i] = static_cast<std::byte>(page * 100 + i);
}

class SessionFile : public testing::Test {
 protected:
  void SetUp() override { write_session(path_, content(), fill_page); }
  std::vector<std::byte> bytes() const {
    const auto file = MappedFile::open(path_);
    return {file->bytes().begin(), file->bytes().end()};
  }
  // With the checksum that belongs to the bytes: what a damaged header says counts, then.
  static std::vector<std::byte> sealed(std::vector<std::byte> bytes) {
    const std::uint64_t size = bytes.size();
    std::memcpy(bytes.data() + 24, &size, sizeof size);
    const Fingerprint checksum = fingerprint(std::span(bytes).first(bytes.size() - sizeof(Fingerprint)));
    std::memcpy(bytes.data() + bytes.size() - sizeof checksum, &checksum, sizeof checksum);
    return bytes;
  }
  std::vector<std::byte> with(const std::string& from, const std::string& to) const {
    std::vector<std::byte> all = bytes();
    std::string text(reinterpret_cast<const char*>(all.data()), all.size());
    const std::size_t at = text.find(from);
    EXPECT_NE(at, std::string::npos) << from;
    text.replace(at, from.size(), to);
    std::uint32_t n_header = 0;
    std::memcpy(&n_header, text.data() + 20, sizeof n_header);
    n_header += static_cast<std::uint32_t>(to.size() - from.size());
    std::memcpy(text.data() + 20, &n_header, sizeof n_header);
    const auto raw = std::as_bytes(std::span(text));
    return sealed({raw.begin(), raw.end()});
  }
  static std::pair<ErrorCode, std::string> problem(std::span<const std::byte> bytes) {
    try {
      parse_session(bytes, "x.session");
    } catch (const Error& error) {
      EXPECT_THAT(error.what(), HasSubstr("x.session")) << "it names the file";
      return {error.code(), error.what()};
    }
    return {ErrorCode::kInternal, ""};
  }

  test::TempDir folder_;
  std::filesystem::path path_ = folder_.path() / "chat.session";
};

TEST_F(SessionFile, WhatIsWrittenIsRead) {
  const std::vector<std::byte> all = bytes();
  const SessionView read = parse_session(all, "x");
  const SessionContent expected = content();
  EXPECT_NO_THROW(read.content.model.check_same(model(), "x"));
  EXPECT_EQ(read.content.tokens, expected.tokens);
  EXPECT_EQ(read.content.positions, expected.positions);
  ASSERT_EQ(read.content.n_pages(), 2U);
  std::vector<std::byte> page(kPageBytes);
  for (std::size_t i = 0; i < 2; ++i) {
    fill_page(i, page);
    EXPECT_TRUE(std::ranges::equal(read.pages.subspan(i * kPageBytes, kPageBytes), page)) << i;
  }
  const ChatRequest conversation = read.conversation();
  ASSERT_EQ(conversation.messages.size(), 3U);
  for (std::size_t i = 0; i < 3; ++i) {
    const ChatMessage& own = conversation.messages[i];
    const ChatMessage& other = expected.conversation.messages[i];
    EXPECT_EQ(own.role, other.role);
    EXPECT_EQ(own.content_is_string, other.content_is_string);
    ASSERT_EQ(own.parts.size(), other.parts.size());
    for (std::size_t k = 0; k < own.parts.size(); ++k) {
      EXPECT_EQ(own.parts[k].kind, other.parts[k].kind);
      EXPECT_EQ(own.parts[k].text, other.parts[k].text);
    }
  }
  ASSERT_EQ(conversation.media.size(), 2U);
  for (std::size_t i = 0; i < 2; ++i) {
    EXPECT_EQ(conversation.media[i].frames, expected.conversation.media[i].frames);
    EXPECT_EQ(conversation.media[i].is_video, expected.conversation.media[i].is_video);
    EXPECT_EQ(conversation.media[i].frames_per_s, expected.conversation.media[i].frames_per_s);
    EXPECT_EQ(conversation.media[i].frame_times_s, expected.conversation.media[i].frame_times_s);
    EXPECT_EQ(conversation.media[i].name, expected.conversation.media[i].name);
  }
  EXPECT_EQ(conversation.media_options.min_pixels, 7);
  EXPECT_EQ(conversation.media_options.max_pixels, 900);
}

TEST_F(SessionFile, EveryCutAndEveryChangedByteIsFound) {
  const std::vector<std::byte> all = bytes();
  for (std::size_t n = 0; n < all.size(); ++n)
    EXPECT_EQ(problem(std::span(all).first(n)).first, ErrorCode::kInvalidFile) << n;
  for (std::size_t i = 0; i < all.size(); ++i) {
    std::vector<std::byte> changed = all;
    changed[i] ^= std::byte{0x10};
    const auto [code, message] = problem(changed);
    const bool is_version = i >= 16 && i < 20;
    EXPECT_EQ(code, is_version ? ErrorCode::kUnsupported : ErrorCode::kInvalidFile) << i << ": " << message;
  }
  EXPECT_THAT(problem(std::span(all).first(100)).second, HasSubstr("cut off"));
  std::vector<std::byte> damaged = all;
  damaged[all.size() / 2] ^= std::byte{1};
  EXPECT_THAT(problem(damaged).second, HasSubstr("checksum"));
  EXPECT_THAT(problem(std::as_bytes(std::span("no session at all, but long enough for one"))).second,
              HasSubstr("no saved session"));
}

TEST_F(SessionFile, NumbersThatDoNotFitAreRefused) {
  EXPECT_EQ(problem(sealed(bytes())).second, "");
  const std::pair<const char*, const char*> cases[] = {
      {R"("tokens":70)", R"("tokens":129)"},
      {R"("tokens":70)", R"("tokens":64)"},
      {R"("tokens":70)", R"("tokens":-1)"},
      {R"("tokens":70)", R"("tokens":1000000000)"},
      {R"("position_axes":3)", R"("position_axes":2)"},
      {R"("position_axes":3)", R"("position_axes":17)"},
      {R"("page_bytes":48)", R"("page_bytes":49)"},
      {R"("page_bytes":48)", R"("page_bytes":1099511627776)"},
      {R"("page_tokens":64)", R"("page_tokens":32)"},
      {R"("layers":2)", R"("layers":0)"},
      {R"("dtype":"int8")", R"("dtype":"auto")"},
      {R"("dtype":"int8")", R"("dtype":"int5")"},
      {R"("width":5)", R"("width":6)"},
      {R"("width":5)", R"("width":65536)"},
      {R"("height":3)", R"("height":0)"},
      {R"("frames":2)", R"("frames":3)"},
      {R"("frames":2)", R"("frames":1073741824)"},
      {R"("frames":1)", R"("frames":2)"},
      {R"("frame_times_s":[0.1,0.7])", R"("frame_times_s":[0.1])"},
      {R"({"type":"video"})", R"({"type":"sound"})"},
      {R"({"type":"image"},)", ""},
      {R"("form":"string")", R"("form":"null")"},
      {R"("form":"string")", R"("form":"verse")"},
      {R"("role":"user",)", ""},
      {R"("fingerprint":"01)", R"("fingerprint":"0x)"},
      {R"({"model")", R"({"tokens":70,"model")"},
  };
  for (const auto& [from, to] : cases) {
    const auto [code, message] = problem(with(from, to));
    EXPECT_EQ(code, ErrorCode::kInvalidFile) << from << " -> " << to << ": " << message;
  }
}

TEST_F(SessionFile, OtherModelsAreRefusedByWhatDiffers) {
  const auto problem_with = [](auto change) {
    SessionModel own = model();
    change(own);
    try {
      model().check_same(own, "x.session");
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::kUnsupported);
      return std::string(error.what());
    }
    return std::string();
  };
  EXPECT_EQ(problem_with([](SessionModel&) {}), "");
  EXPECT_THAT(problem_with([](SessionModel& m) { m.architecture = "Other"; }), HasSubstr("Other"));
  EXPECT_THAT(problem_with([](SessionModel& m) { m.fingerprint.upper_high = 5; }),
              HasSubstr("another model"));
  EXPECT_THAT(problem_with([](SessionModel& m) { m.kv.dtype = KvDType::kF16; }),
              HasSubstr("are int8, this cache's are fp16"));
  for (const auto& change :
       {+[](SessionModel& m) { m.kv.n_layers = 9; }, +[](SessionModel& m) { m.kv.n_kv_heads = 9; },
        +[](SessionModel& m) { m.kv.head_dim = 9; }, +[](SessionModel& m) { m.page_bytes = 9; },
        +[](SessionModel& m) { m.n_position_axes = 1; }})
    EXPECT_NE(problem_with(change), "");
}

TEST_F(SessionFile, OnlySessionsAreReplaced) {
  SessionContent small = content();
  small.tokens.clear();
  small.positions.clear();
  write_session(path_, small, fill_page);
  EXPECT_TRUE(parse_session(bytes(), "x").pages.empty());
  write_text_file(folder_.path() / "photo.png", "no session");
  EXPECT_THAT([&] { write_session(folder_.path() / "photo.png", small, fill_page); },
              testing::Throws<Error>(testing::Property(&Error::code, ErrorCode::kInvalidArgument)));
  EXPECT_EQ(read_text_file(folder_.path() / "photo.png"), "no session");
  // A failure on the way leaves what was there.
  const std::vector<std::byte> before = bytes();
  EXPECT_THROW(
      write_session(path_, content(), [](std::size_t, std::span<std::byte>) { fail(ErrorCode::kIo, "x"); }),
      Error);
  EXPECT_EQ(bytes(), before);
  EXPECT_EQ(std::distance(std::filesystem::directory_iterator(folder_.path()), {}), 2);
}

TEST_F(SessionFile, WhatTheFormatCannotHoldIsRefused) {
  SessionContent calls = content();
  calls.conversation.messages[2].fields = share(OrderedJson({{"tool_calls", 1}}));
  EXPECT_THROW(write_session(path_, calls, fill_page), Error);
  SessionContent bytes_only = content();
  bytes_only.conversation.media[1].name = "\xff.gif";
  EXPECT_THAT([&] { write_session(path_, bytes_only, fill_page); },
              testing::Throws<Error>(testing::Property(&Error::code, ErrorCode::kUnsupported)));
}

}  // namespace
}  // namespace triptych
