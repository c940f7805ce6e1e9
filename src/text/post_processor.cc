#include "text/post_processor.h"

#include <limits>
#include <string>

#include "base/error.h"

namespace triptych {
namespace {

constexpr std::size_t kMaxTokens = 4096;

std::int32_t as_id(const JsonView& view) {
  return static_cast<std::int32_t>(view.as_int(0, std::numeric_limits<std::int32_t>::max()));
}

void append(std::vector<std::int32_t>& to, const std::vector<std::int32_t>& ids, const JsonView& view) {
  if (to.size() + ids.size() > kMaxTokens)
    fail(ErrorCode::kInvalidFile, "{}: adds more than {} tokens", view.path(), kMaxTokens);
  to.insert(to.end(), ids.begin(), ids.end());
}

PostProcessor parse_template(const JsonView& view) {
  PostProcessor out;
  out.keeps_text = false;
  const JsonView special = view.at("special_tokens");
  for (const JsonView& piece : view.at("single").items()) {
    if (const auto sequence = piece.find("Sequence")) {
      if (sequence->at("id").as_string() != "A")
        sequence->at("id").fail_expected("\"A\" in the template of one text");
      if (out.keeps_text)
        fail(ErrorCode::kUnsupported, "{}: a template that repeats its text is not supported", piece.path());
      out.keeps_text = true;
      continue;
    }
    const std::string name = piece.at("SpecialToken").at("id").as_string();
    std::vector<std::int32_t> ids;
    for (const JsonView& id : special.at(name).at("ids").items()) ids.push_back(as_id(id));
    append(out.keeps_text ? out.after : out.before, ids, piece);
  }
  return out;
}

// [content, id]
std::int32_t parse_pair(const JsonView& view) {
  const auto items = view.items();
  if (items.size() != 2) view.fail_expected("[token, id]");
  return as_id(items[1]);
}

}  // namespace

PostProcessor parse_post_processor(const JsonView& view) {
  if (view.is_null()) return {};
  const std::string type = view.at("type").as_string();
  if (type == "TemplateProcessing") return parse_template(view);
  if (type == "BertProcessing" || type == "RobertaProcessing") {
    PostProcessor out;
    out.before.push_back(parse_pair(view.at("cls")));
    out.after.push_back(parse_pair(view.at("sep")));
    return out;
  }
  if (type == "ByteLevel") return {};
  if (type == "Sequence") {
    PostProcessor out;
    for (const JsonView& item : view.at("processors").items()) {
      const PostProcessor part = parse_post_processor(item);
      if (!part.keeps_text) {
        out = part;
        continue;
      }
      // Each processor wraps what the ones before it made.
      std::vector<std::int32_t> before = part.before;
      append(before, out.before, item);
      out.before = std::move(before);
      append(out.after, part.after, item);
    }
    return out;
  }
  fail(ErrorCode::kUnsupported, "{}: post_processor type \"{}\" is not supported", view.path(), type);
}

}  // namespace triptych
