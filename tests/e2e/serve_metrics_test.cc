// /metrics of `triptych serve`, and what a picture seen before is spared.
#include <sstream>

#include "e2e/http_client.h"
#include "e2e/program.h"

namespace triptych::test {
namespace {

using nlohmann::json;
using testing::HasSubstr;

json question_about_a_picture() {
  return {{"messages",
           {{{"role", "user"},
             {"content",
              {{{"type", "image_url"},
                {"image_url", {{"url", data_url_of(kSource / "assets/eval/scenes/0000.png")}}}},
               {{"type", "text"}, {"text", "Describe the image."}}}}}}},
          {"max_tokens", 4},
          {"temperature", 0}};
}

TEST(ServeMetrics, CountAPictureOnceWhenItsRowsAreKept) {
  const ServerProcess server({"--vision-cache-mib", "16"});
  const auto ask = [&] {
    const HttpReply reply = server.post("/v1/chat/completions", question_about_a_picture());
    EXPECT_EQ(reply.status, 200) << reply.body;
    return reply.json()["choices"];
  };
  const json first = ask();
  EXPECT_EQ(ask(), first);
  EXPECT_EQ(server.metric("triptych_images_total"), 2);
  EXPECT_EQ(server.metric("triptych_images_preprocessed_total"), 1);
  EXPECT_EQ(server.metric("triptych_images_encoded_total"), 1);
  EXPECT_EQ(server.metric("triptych_mm_cache_queries_total"), 2);
  EXPECT_EQ(server.metric("triptych_mm_cache_hits_total"), 1);
  // To count tokens no pixel is needed.
  EXPECT_EQ(server.post("/tokenize", question_about_a_picture()).status, 200);
  EXPECT_EQ(server.metric("triptych_images_preprocessed_total"), 1);
}

TEST(ServeMetrics, AreTheEnginesAndTheServers) {
  const ServerProcess server;
  EXPECT_EQ(server.metric("triptych_time_to_first_token_seconds_count"), 0)
      << "shown before the first request";
  EXPECT_EQ(server.post("/v1/chat/completions", question_about_a_picture()).status, 200);
  const HttpReply reply = server.get("/metrics");
  EXPECT_THAT(reply.header("content-type"), HasSubstr("version=0.0.4"));
  for (const char* name : {"time_to_first_token_seconds", "e2e_request_latency_seconds",
                           "request_queue_time_seconds", "mm_media_decode_latency_seconds",
                           "mm_preprocessing_total_latency_seconds", "mm_encoder_latency_seconds",
                           "mm_resolve_items_latency_seconds", "request_params_n", "request_prompt_tokens"})
    EXPECT_EQ(server.metric(std::string("triptych_") + name + "_count"), 1) << name;
  EXPECT_EQ(server.metric("triptych_generation_tokens_total"), 4);
  EXPECT_EQ(server.metric("triptych_num_requests_running"), 0);
  EXPECT_EQ(server.metric("triptych_num_requests_waiting"), 0);
  EXPECT_THAT(reply.body, HasSubstr("triptych_request_success_total{finished_reason=\"length\"} 1\n"));
  EXPECT_THAT(reply.body,
              HasSubstr("triptych_http_requests_total{route=\"/v1/chat/completions\",status=\"200\"} 1\n"));
  std::istringstream lines(reply.body);
  for (std::string line; std::getline(lines, line);)
    EXPECT_TRUE(line.rfind("# ", 0) == 0 || line.rfind("triptych_", 0) == 0 || line.rfind("process_", 0) == 0)
        << line;
}

}  // namespace
}  // namespace triptych::test
