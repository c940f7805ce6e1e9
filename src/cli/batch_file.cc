#include "cli/batch_file.h"

#include <fcntl.h>
#include <sys/file.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <map>
#include <set>
#include <string_view>

#include <nlohmann/json.hpp>

#include "base/error.h"
#include "cli/input_file.h"
#include "report/text_table.h"

namespace triptych::cli {
namespace {

constexpr std::uint64_t kMaxFile_bytes = std::uint64_t{1} << 30;
constexpr const char* kLineSchema = "run_line";

// What a line is known by in OUT: its id, or where it has none its number.
std::string key_of(const JsonOut& id, std::int64_t number) {
  return id.is_null() ? fmt::format("line {}", number) : "id " + id.dump();
}

template <typename Visit>
void for_each_line(std::string_view text, const Visit& visit) {
  std::int64_t number = 0;
  for (std::size_t from = 0; from < text.size();) {
    const std::size_t end = std::min(text.find('\n', from), text.size());
    std::string_view line = text.substr(from, end - from);
    if (line.ends_with('\r')) line.remove_suffix(1);
    visit(++number, line);
    from = end + 1;
  }
}

BatchLine parse_line(std::int64_t number, std::string_view text, const std::string& where) {
  BatchLine out{.number = number, .id = nullptr, .content = nullptr, .problem = {}};
  try {
    out.content = parse_json_unique_keys(text, where);
    const JsonView view(out.content, where);
    if (!view.is_object()) fail(ErrorCode::kInvalidFile, "{}: expected an object", where);
    if (const auto id = view.find("id")) {
      if (!id->is_string() && !id->is_integer())
        fail(ErrorCode::kInvalidFile, "{}: expected a string or an integer", id->path());
      out.id = JsonOut::parse(id->raw().dump());
    }
  } catch (const Error& error) {
    out.problem = error.what();
  }
  return out;
}

std::vector<BatchLine> parse_input(const std::string& text, const std::string& source) {
  std::vector<BatchLine> out;
  std::map<std::string, std::int64_t> seen;
  for_each_line(text, [&](std::int64_t number, std::string_view line) {
    if (line.find_first_not_of(" \t") == std::string_view::npos) return;
    out.push_back(parse_line(number, line, fmt::format("{}:{}", source, number)));
    const auto [before, is_new] = seen.emplace(key_of(out.back().id, number), number);
    if (!is_new)
      fail(ErrorCode::kInvalidFile, "{}: lines {} and {} have the same {}", source, before->second, number,
           before->first);
  });
  return out;
}

// The keys of the lines in OUT; `whole_bytes` is where its last whole line ends.
std::set<std::string> parse_output(std::string_view text, const std::string& name, std::size_t& whole_bytes) {
  const std::size_t last = text.rfind('\n');
  whole_bytes = last == std::string_view::npos ? 0 : last + 1;
  const JsonOut schema = json_document(kLineSchema);
  // What is cut off has to be the beginning of an answer, not somebody's text without an end of line.
  std::string begin = to_json_text(schema, false);
  begin.back() = ',';
  const std::string_view rest = text.substr(whole_bytes);
  if (!rest.starts_with(std::string_view(begin).substr(0, rest.size())))
    fail(ErrorCode::kInvalidFile,
         "--jsonl: {}:{}: expected an answer that --jsonl wrote; give another name for OUT", name,
         1 + std::count(text.begin(), text.end(), '\n'));
  std::set<std::string> out;
  for_each_line(text.substr(0, whole_bytes), [&](std::int64_t number, std::string_view line) {
    const JsonOut one = JsonOut::parse(line, nullptr, false);
    if (!one.is_object() || one.value("schema", "") != schema["schema"] || !one.contains("line") ||
        !one["line"].is_number_integer())
      fail(ErrorCode::kInvalidFile,
           "--jsonl: {}:{}: expected an answer that --jsonl wrote; give another name for OUT", name, number);
    out.insert(key_of(one.contains("id") ? one["id"] : JsonOut(), one["line"].get<std::int64_t>()));
  });
  return out;
}

}  // namespace

BatchFile::BatchFile(const std::string& in, const std::string& out) : out_(out) {
  const std::string source = in == "-" ? "questions on stdin" : in;
  folder_ = in == "-" ? std::filesystem::path() : std::filesystem::path(in).parent_path();
  std::vector<BatchLine> lines = parse_input(read_all_text(in, kMaxFile_bytes, source), source);
  n_lines_ = lines.size();
  std::set<std::string> done;
  if (out == "-") {
    fd_ = STDOUT_FILENO;
  } else {
    open_output();
    std::size_t whole_bytes = 0;
    const std::vector<std::byte> bytes = read_all(out, kMaxFile_bytes, "--jsonl: " + one_line(out));
    done =
        parse_output({reinterpret_cast<const char*>(bytes.data()), bytes.size()}, one_line(out), whole_bytes);
    if (whole_bytes < bytes.size() && ::ftruncate(fd_, static_cast<off_t>(whole_bytes)) != 0)
      fail(ErrorCode::kIo, "--jsonl: {}: {}", one_line(out), std::strerror(errno));
  }
  for (BatchLine& line : lines)
    if (!done.contains(key_of(line.id, line.number))) to_do_.push_back(std::move(line));
}

BatchFile::~BatchFile() {
  if (fd_ >= 0 && fd_ != STDOUT_FILENO) ::close(fd_);
}

void BatchFile::open_output() {
  fd_ = ::open(out_.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0666);
  if (fd_ < 0) fail(ErrorCode::kIo, "--jsonl: {}: {}", one_line(out_), std::strerror(errno));
  if (::flock(fd_, LOCK_EX | LOCK_NB) != 0 && errno == EWOULDBLOCK) {
    ::close(fd_);
    fail(ErrorCode::kIo, "--jsonl: {}: another process writes it", one_line(out_));
  }
}

JsonOut BatchFile::answer_to(const BatchLine& line) {
  JsonOut out = json_document(kLineSchema);
  out["line"] = line.number;
  out["id"] = line.id;
  return out;
}

void BatchFile::write(const JsonOut& answer) {
  const std::string text = to_json_text(answer, false) + '\n';
  for (std::size_t done = 0; done < text.size();) {
    const ssize_t n = ::write(fd_, text.data() + done, text.size() - done);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) fail(ErrorCode::kIo, "--jsonl: {}: {}", one_line(out_), std::strerror(errno));
    done += static_cast<std::size_t>(n);
  }
}

void BatchFile::finish() {
  if (fd_ != STDOUT_FILENO && ::fsync(fd_) != 0)
    fail(ErrorCode::kIo, "--jsonl: {}: {}", one_line(out_), std::strerror(errno));
}

}  // namespace triptych::cli
