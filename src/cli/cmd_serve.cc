// triptych serve: an OpenAI-compatible HTTP server.
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <thread>

#include <CLI/CLI.hpp>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/log_event.h"
#include "cli/commands.h"
#include "cli/error_output.h"
#include "cli/flags.h"
#include "cli/help_tree.h"
#include "cli/json_output.h"
#include "cli/prefix_cache_flags.h"
#include "engine/engine.h"
#include "server/fetch_url.h"
#include "server/serve.h"

namespace triptych::cli {
namespace {

constexpr const char* kNetworkGroup = "Network";
constexpr const char* kLoadGroup = "Load";
constexpr const char* kAccessGroup = "Access";
constexpr const char* kLogGroup = "Log";
constexpr double kMiB = 1024.0 * 1024.0;

struct ServeFlags {
  ModelFlags model;
  ContextFlags context;
  bool replay_steps = true;
  server::HttpServerOptions http;
  std::vector<std::string> names;
  int max_num_seqs = 16;
  std::int64_t max_batch_tokens = 1024;
  std::int64_t kv_cache_tokens = 0;
  int max_queue = 256;
  int workers = 0;
  PrefixCacheFlags prefix_cache;
  double vision_cache_mib = 0;
  double max_body_mib = 64;
  double max_image_megapixels = 64;
  int max_connections = 16384;
  double drain_s = 30;
  double idle_timeout_s = 75;
  std::string api_key_file;
  std::string local_media;
  std::vector<std::string> allowed_origins;
  std::vector<std::string> media_domains;
  double media_timeout_s = 10;
  std::string log_format = "text", log_requests = "off";
  bool json = false;

  void add_to(CLI::App& app);
  server::ServeOptions options() const;
};

void ServeFlags::add_to(CLI::App& app) {
  model.add_to(app);
  const auto add = [&](const char* group, const char* name, auto& to, const char* description,
                       const char* type) {
    return app.add_option(name, to, description)->type_name(type)->group(group)->capture_default_str();
  };
  add(kNetworkGroup, "--host", http.host, "Address or name to listen at; :: takes IPv4 and IPv6", "HOST");
  add(kNetworkGroup, "--port", http.port, "Port; 0: any that is free", "N")
      ->check(CLI::Range(0, 65535).description(""));
  add(kNetworkGroup, "--uds", http.uds, "Listen at this Unix socket instead", "PATH")->default_str("");
  add(kNetworkGroup, "--ssl-certfile", http.ssl_certfile, "Certificate chain (PEM): HTTPS", "FILE")
      ->default_str("");
  add(kNetworkGroup, "--ssl-keyfile", http.ssl_keyfile, "Its private key (PEM)", "FILE")->default_str("");
  app.add_flag("--reuse-port", http.reuse_port,
               "Share the port with other processes (SO_REUSEPORT), and listen when the model is loaded")
      ->group(kNetworkGroup);
  add(kNetworkGroup, "--max-connections", max_connections, "Open connections; more are told 503", "N")
      ->check(CLI::Range(1, 1'000'000).description(""));
  add(kNetworkGroup, "--max-body-mib", max_body_mib, "Largest body of a request; more is 413", "MIB")
      ->check(CLI::Range(0.001, 1024.0).description(""));
  add(kNetworkGroup, "--idle-timeout", idle_timeout_s, "Seconds that a connection may wait between requests",
      "S")
      ->check(CLI::Range(0.1, 86400.0).description(""));
  add(kNetworkGroup, "--drain-seconds", drain_s, "After SIGTERM, time to end answers that have begun", "S")
      ->check(CLI::Range(0.0, 86400.0).description(""));
  app.add_option("--served-model-name", names,
                 "What clients may call the model; may be repeated, answers carry the first")
      ->expected(1)
      ->take_all()
      ->type_name("NAME")
      ->default_str("MODEL as given, and its last part")
      ->group(kAccessGroup);
  add(kAccessGroup, "--api-key-file", api_key_file,
      "Keys, one a line, that requests must carry; the environment variable TRIPTYCH_API_KEY adds one",
      "FILE")
      ->default_str("");
  add(kAccessGroup, "--allowed-local-media-path", local_media,
      "Pictures of requests may be file URLs below this folder; links and .. do not leave it", "DIR")
      ->default_str("");
  app.add_option(
         "--allowed-media-domains", media_domains,
         "Pictures of requests may be http and https URLs of this host: NAME, *.NAME or *, and :PORT for "
         "another than 80 and 443; may be repeated. Only addresses of the public internet are asked")
      ->expected(1)
      ->take_all()
      ->type_name("HOST")
      ->group(kAccessGroup);
  add(kAccessGroup, "--media-timeout", media_timeout_s,
      "Seconds that fetching the pictures of a request may take", "S")
      ->check(CLI::Range(0.1, 600.0).description(""));
  app.add_option("--allowed-origins", allowed_origins,
                 "Web pages of this origin may ask (CORS); * for any; may be repeated")
      ->expected(1)
      ->take_all()
      ->type_name("ORIGIN")
      ->group(kAccessGroup);
  add(kLoadGroup, "--max-num-seqs", max_num_seqs, "Answers made at once, one batch", "N")
      ->check(CLI::Range(1, 1024).description(""));
  add(kLoadGroup, "--max-num-batched-tokens", max_batch_tokens, "Tokens of one step", "N")
      ->check(CLI::Range(std::int64_t{1}, std::int64_t{1} << 20).description(""));
  add(kLoadGroup, "--kv-cache-tokens", kv_cache_tokens, "Tokens of the key/value cache, all answers together",
      "N")
      ->check(CLI::Range(std::int64_t{0}, std::int64_t{1} << 30).description(""))
      ->default_str("one context");
  add(kLoadGroup, "--max-queue", max_queue, "Requests that may wait beside those; more are told 429", "N")
      ->check(CLI::Range(0, 1'000'000).description(""));
  add(kLoadGroup, "--media-threads", workers, "Threads that decode and resize pictures", "N")
      ->check(CLI::Range(0, 256).description(""))
      ->default_str("half the processors");
  prefix_cache.add_to(app, kLoadGroup, "");
  add(kLoadGroup, "--vision-cache-mib", vision_cache_mib, "Memory for the embeddings of pictures seen lately",
      "MIB")
      ->check(CLI::Range(0.0, 1e6).description(""));
  add(kLoadGroup, "--max-image-megapixels", max_image_megapixels, "Largest picture; more is 413", "MP")
      ->check(CLI::Range(0.001, 1000.0).description(""));
  add(kLogGroup, "--log-format", log_format, "Lines on stderr: text, or json, an object each", "FORMAT")
      ->check(CLI::IsMember({"text", "json"}).description(""));
  add(kLogGroup, "--log-requests", log_requests,
      "A line for each request: off; hash, which tells equal bodies; text, the bodies without pictures",
      "WHAT")
      ->check(CLI::IsMember({"off", "hash", "text"}).description(""));
  context.add_to(app);
  add_enforce_eager(app, replay_steps);
  add_json_flag(app, json, "Print one JSON object that says where the server listens");
  show_first(app, {"host", "port", "max-num-seqs", "served-model-name", "weights"});
}

server::ServeOptions ServeFlags::options() const {
  server::ServeOptions out;
  out.http = http;
  out.http.max_connections = static_cast<std::size_t>(max_connections);
  out.http.max_body_bytes = static_cast<std::size_t>(max_body_mib * kMiB);
  const auto ms = [](double s) { return std::chrono::milliseconds(static_cast<std::int64_t>(s * 1e3)); };
  out.http.idle_timeout = ms(idle_timeout_s);
  out.drain = ms(drain_s);
  if (!api_key_file.empty()) out.service.keys.add_file(api_key_file);
  if (const char* key = std::getenv("TRIPTYCH_API_KEY"); key != nullptr && *key != '\0')
    out.service.keys.add(key);
  out.service.max_queue = static_cast<std::size_t>(max_queue);
  const int half = static_cast<int>(std::thread::hardware_concurrency() / 2);
  out.service.n_workers = workers > 0 ? workers : std::max(1, half);
  out.service.media.max_image_pixels = static_cast<std::uint64_t>(max_image_megapixels * 1e6);
  out.service.media.max_request_pixels = 4 * out.service.media.max_image_pixels;
  out.service.allowed_origins = allowed_origins;
  if (!local_media.empty() && !std::filesystem::is_directory(local_media))
    fail(ErrorCode::kNotFound, "--allowed-local-media-path: {} is no folder", local_media);
  out.service.media.local_root = local_media;
  for (const std::string& domain : media_domains) try {
      server::check_media_domain(domain);
    } catch (const Error& error) {
      fail(error.code(), "--allowed-media-domains {}", error.what());
    }
  out.service.fetch.domains = media_domains;
  out.service.fetch.timeout = ms(media_timeout_s);
  out.service.fetch.max_bytes = out.http.max_body_bytes;
  out.service.fetch.max_all_bytes =
      std::max<std::uint64_t>(out.http.max_all_bodies_bytes, out.http.max_body_bytes);
  out.service.log_requests = log_requests == "hash"   ? server::LogRequests::kHash
                             : log_requests == "text" ? server::LogRequests::kText
                                                      : server::LogRequests::kOff;
  out.engine = context.engine_options();
  out.engine.replay_steps = replay_steps;
  out.engine.max_sequences = max_num_seqs;
  out.engine.max_batch_tokens = max_batch_tokens;
  out.engine.kv_cache_tokens = kv_cache_tokens;
  out.engine.prefix_cache_bytes = prefix_cache.bytes();
  out.engine.vision_embedding_cache_bytes = static_cast<std::size_t>(vision_cache_mib * kMiB);
  out.names = names;
  if (names.empty()) {
    out.names.push_back(model.model);
    std::filesystem::path path(model.model);
    if (path.filename().empty()) path = path.parent_path();
    if (path.filename().string() != model.model) out.names.push_back(path.filename().string());
  }
  return out;
}

int serve(const ServeFlags& flags) {
  if (flags.log_format == "json") set_log_format(LogFormat::kJson);
  server::ServeOptions options = flags.options();
  static_cast<void>(flags.model.load_options());  // refuses a wrong word before the port is taken
  options.load = [&] {
    auto model = flags.model.open();
    flags.context.check(model->info().max_context_tokens);
    return model;
  };
  const bool quiet = flags.model.quiet;
  options.on_ready = [json = flags.json,
                      name = options.names.front()](const std::vector<std::string>& endpoints) {
    if (json) {
      print_json(json_document("serve", {{"model", name}, {"endpoints", endpoints}}), false);
    } else {
      for (const std::string& one : endpoints) std::printf("serving %s at %s\n", name.c_str(), one.c_str());
    }
    std::fflush(stdout);  // whoever started it may wait for this line
  };
  options.on_drain = [quiet, json = flags.log_format == "json"](std::size_t n) {
    if (json) {
      log_event(LogLevel::kInfo, "shutting down", {{"requests", static_cast<std::int64_t>(n)}});
    } else if (!quiet) {
      std::fprintf(stderr, "triptych: shutting down, %zu requests to end\n", n);
    }
  };
  server::serve(std::move(options));
  return kExitOk;
}

}  // namespace

void add_serve_command(CLI::App& program, Action& action) {
  auto flags = std::make_shared<ServeFlags>();
  CLI::App& app = *program.add_subcommand("serve", "Serve a model over HTTP, as OpenAI's API does");
  flags->add_to(app);
  app.footer(
      "Examples:\n"
      "  triptych serve MODEL\n"
      "  triptych serve MODEL --port 8080 --max-num-seqs 32 --served-model-name llava\n"
      "  triptych serve MODEL --host :: --api-key-file keys.txt --ssl-certfile cert.pem --ssl-keyfile "
      "key.pem\n"
      "  triptych serve MODEL --uds /run/triptych.sock\n"
      "  curl http://127.0.0.1:8000/v1/chat/completions -H 'Content-Type: application/json' \\\n"
      "    -d '{\"messages\": [{\"role\": \"user\", \"content\": \"Hello\"}]}'");
  app.callback([flags, &action] { action = [flags] { return serve(*flags); }; });
}

}  // namespace triptych::cli
