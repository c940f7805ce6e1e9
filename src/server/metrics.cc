#include "server/metrics.h"

#include <sys/resource.h>
#include <unistd.h>

#include <fstream>
#include <utility>
#include <vector>

#include "engine/engine_metrics.h"
#include "server/metrics_text.h"

namespace triptych::server {
namespace {

// As the engine's stages of pictures.
const std::vector<double> kStage_s = {.0005, .001, .0025, .005, .01, .025, .05, .1,
                                      .25,   .5,   1,     2.5,  5,   10,   30};
const std::vector<double> kHttp_s = {.001, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10, 30, 60, 300};
const std::vector<double> kBytes = {1e3, 1e4, 1e5, 1e6, 1e7, 1e8};
const std::vector<double> kAnswers = {1, 2, 5, 10, 20, 50, 100};
const std::vector<double> kTokens = {1,   2,    5,    10,   20,    50,    100,   200,
                                     500, 1000, 2000, 5000, 10000, 20000, 50000, 100000};

MetricId id_of(std::string_view name, std::string help) {
  return {std::string(kMetricPrefix) + std::string(name), std::move(help)};
}

// Numbers that others count, as they are now.
class Moments {
 public:
  template <typename T>
  void counter(std::string_view name, std::string help, T value) {
    add(id_of(name, std::move(help)), MetricKind::kCounter, static_cast<double>(value));
  }
  template <typename T>
  void gauge(std::string_view name, std::string help, T value) {
    add(id_of(name, std::move(help)), MetricKind::kGauge, static_cast<double>(value));
  }
  void add(MetricId id, MetricKind kind, double value) {
    families.push_back({std::move(id.name),
                        std::move(id.help),
                        kind,
                        {},
                        {{.labels = std::move(id.labels), .value = value, .buckets = {}, .count = 0}}});
  }
  std::vector<MetricFamily> families;
};

// Of the process, under the names that Prometheus' own clients give them.
void add_process(Moments& out) {
  rusage usage{};
  if (getrusage(RUSAGE_SELF, &usage) == 0) {
    const auto seconds = [](const timeval& t) {
      return static_cast<double>(t.tv_sec) + static_cast<double>(t.tv_usec) / 1e6;
    };
    out.add({"process_cpu_seconds_total", "Processor time of this process."}, MetricKind::kCounter,
            seconds(usage.ru_utime) + seconds(usage.ru_stime));
  }
  std::ifstream in("/proc/self/statm");
  double n_virtual = 0, n_resident = 0;
  if (!(in >> n_virtual >> n_resident)) return;
  const auto page = static_cast<double>(sysconf(_SC_PAGESIZE));
  out.add({"process_resident_memory_bytes", "Memory of this process that is in use."}, MetricKind::kGauge,
          n_resident * page);
  out.add({"process_virtual_memory_bytes", "Address space of this process."}, MetricKind::kGauge,
          n_virtual * page);
}

}  // namespace

ServerMetrics::ServerMetrics()
    : images_(registry_.counter(id_of("images_total", "Pictures that were decoded."))),
      image_bytes_(registry_.counter(id_of("image_bytes_total", "Bytes of pictures as they were sent."))),
      preprocessed_(registry_.counter(
          id_of("images_preprocessed_total",
                "Pictures that were resized and normalised: not those found in the visual cache."))),
      image_tokens_(registry_.counter(
          id_of("image_tokens_total", "Tokens of prompts that stood for pictures, of ended answers."))),
      download_s_(registry_.histogram(
          id_of("mm_media_download_latency_seconds", "Time to fetch a picture from another host."),
          kStage_s)),
      download_bytes_(registry_.histogram(
          id_of("mm_media_download_bytes", "Bytes of a picture fetched from another host."), kBytes)),
      resolve_s_(registry_.histogram(
          id_of("mm_resolve_items_latency_seconds", "Time to fetch and decode all pictures of a request."),
          kStage_s)),
      prepare_s_(registry_.histogram(
          id_of("request_prepare_time_seconds",
                "Time to render and tokenize a request, and to resize and normalise its pictures."),
          kStage_s)),
      n_answers_(
          registry_.histogram(id_of("request_params_n", "Answers that a request asks for."), kAnswers)),
      max_tokens_(registry_.histogram(
          id_of("request_params_max_tokens", "Tokens that an answer may have, where the request says it."),
          kTokens)) {}

void ServerMetrics::count_http(std::string_view route, int status, double seconds) {
  MetricId id = id_of("http_requests_total", "HTTP requests by route and status.");
  id.labels = {{"route", std::string(route)}, {"status", std::to_string(status)}};
  registry_.counter(id).add(1);
  MetricId time =
      id_of("http_request_duration_seconds", "Time from a whole HTTP request to the end of its answer.");
  time.labels = {{"route", std::string(route)}};
  registry_.histogram(time, kHttp_s).observe(seconds);
}

void ServerMetrics::count_image(std::uint64_t n_bytes) {
  images_.add(1);
  image_bytes_.add(static_cast<double>(n_bytes));
}

void ServerMetrics::count_preprocessed() { preprocessed_.add(1); }

void ServerMetrics::prepared(double media_s, std::size_t n_media, double prepare_s) {
  if (n_media > 0) resolve_s_.observe(media_s);
  prepare_s_.observe(prepare_s);
}

void ServerMetrics::downloaded(double seconds, std::uint64_t n_bytes) {
  download_s_.observe(seconds);
  download_bytes_.observe(static_cast<double>(n_bytes));
}

void ServerMetrics::asked(std::size_t n_answers, std::int64_t max_tokens) {
  n_answers_.observe(static_cast<double>(n_answers));
  if (max_tokens > 0) max_tokens_.observe(static_cast<double>(max_tokens));
}

void ServerMetrics::count_image_tokens(std::int64_t n) { image_tokens_.add(static_cast<double>(n)); }

std::string ServerMetrics::text(const Moment& now) const {
  Moments out;
  MetricId build = id_of("build_info", "The version that runs.");
  build.labels = {{"version", now.version}};
  out.add(std::move(build), MetricKind::kGauge, 1);
  for (MetricFamily& family : registry_.snapshot()) out.families.push_back(std::move(family));
  out.counter("images_encoded_total", "Pictures that the tower has seen.", now.engine.n_media_encoded);
  out.counter("steps_total", "Steps of the engine.", now.engine.n_steps);
  out.counter("step_seconds_total", "Seconds spent in steps.", now.engine.step_s);
  out.gauge("kv_cache_bytes", "Memory of the key/value cache.", now.engine.kv_cache_bytes);
  out.gauge("num_requests_preparing", "Requests whose pictures are decoded and resized.", now.n_preparing);
  out.gauge("num_requests_in_flight", "Requests from their first byte of work to the end of their answers.",
            now.n_in_flight);
  out.gauge("http_connections", "Open connections.", now.n_connections);
  out.counter("http_connections_total", "Connections that were accepted.", now.n_accepted);
  out.counter("http_connections_refused_total", "Connections over the limit.", now.n_refused);
  out.counter("slow_readers_total", "Clients that were dropped because they did not read.",
              now.n_slow_readers);
  add_process(out);
  return metrics_text(out.families);
}

}  // namespace triptych::server
