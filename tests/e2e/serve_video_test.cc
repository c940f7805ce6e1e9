// Videos over HTTP are what `triptych run --video` makes of them.
#include "e2e/http_client.h"
#include "e2e/program.h"

namespace triptych::test {
namespace {

using nlohmann::json;
using testing::HasSubstr;

const std::string kQwen = kSource / "assets/models/scenes-qwen2-vl";
const std::string kStar = kScenes / "scene1.png";

ServerProcess& server() {
  static ServerProcess one({}, kQwen);
  return one;
}

HttpReply ask_about(const json& part) {
  return server().post(
      "/v1/chat/completions",
      {{"messages",
        {{{"role", "user"},
          {"content", {part, {{"type", "text"}, {"text", "Is the star small or large?"}}}}}}},
       {"max_tokens", 8},
       {"temperature", 0},
       {"min_pixels", 3136},
       {"max_pixels", 12544}});
}

json video(const json& url) { return {{"type", "video_url"}, {"video_url", {{"url", url}}}}; }

TEST(ServeVideo, IsAnsweredAsByRun) {
  const RunResult run =
      triptych({"run", kQwen, "--video", kStar, "--prompt", "Is the star small or large?", "--min-pixels",
                "3136", "--max-pixels", "12544", "--max-tokens", "8", "--json"});
  ASSERT_EQ(run.exit_code, 0) << run.err;
  const json wanted = json::parse(run.out);
  const std::string frame = data_url_of(kStar);
  const std::string bytes = frame.substr(frame.find(',') + 1);
  const auto expect_same = [&](const json& part, int n_frames) {
    const HttpReply reply = ask_about(part);
    ASSERT_EQ(reply.status, 200) << reply.body;
    const json answer = reply.json();
    EXPECT_EQ(answer["choices"][0]["message"]["content"], wanted["text"]);
    if (n_frames <= 2) {  // of one temporal patch
      EXPECT_EQ(answer["usage"]["prompt_tokens_details"]["image_tokens"], wanted["usage"]["image_tokens"]);
    } else {
      EXPECT_EQ(answer["usage"]["prompt_tokens_details"]["image_tokens"].get<int>(),
                n_frames / 2 * wanted["usage"]["image_tokens"].get<int>());
    }
  };
  expect_same(video(frame), 1);
  expect_same({{"type", "video"}, {"video", frame}}, 1);
  expect_same(video(json::array({frame, frame})), 2);
  expect_same(video("data:video/jpeg;base64," + bytes + "," + bytes), 2);
  expect_same(video(json::array({frame, frame, frame, frame})), 4);
}

TEST(ServeVideo, SaysWhatIsWrongWithIt) {
  const auto expect_error = [](const HttpReply& reply, int status, const std::string& param,
                               const std::string& part) {
    ASSERT_EQ(reply.status, status) << reply.body;
    EXPECT_EQ(reply.json()["error"]["param"], "messages[0].content[0]." + param);
    EXPECT_THAT(reply.json()["error"]["message"].get<std::string>(), HasSubstr(part));
  };
  const std::string frame = data_url_of(kStar);
  expect_error(ask_about(video(json::array())), 400, "video_url.url", "at least one frame");
  expect_error(ask_about(video(3)), 400, "video_url.url", "expected");
  expect_error(ask_about(video("data:video/mp4;base64,AAAA")), 415, "video_url.url", "video/mp4");
  expect_error(ask_about(video("data:video/jpeg;base64,,")), 400, "video_url.url", "frame 1");
  expect_error(ask_about(video(json::array({frame, "data:image/png;base64,AAAA"}))), 400, "video_url.url",
               "frame 2");
  expect_error(ask_about(video(json::array({frame, "x"}))), 400, "video_url.url[1]", "data URL");
  expect_error(ask_about(video("http://127.0.0.1/x.gif")), 400, "video_url.url", "data URL");
  json fast = video(frame);
  fast["video_url"]["fps"] = 0;
  expect_error(ask_about(fast), 400, "video_url.fps", "expected");
}

}  // namespace
}  // namespace triptych::test
