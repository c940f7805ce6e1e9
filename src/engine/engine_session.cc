// Conversations that are saved with their keys and values, and go on later.
#include <algorithm>

#include "base/error.h"
#include "engine/engine.h"
#include "engine/sequence.h"
#include "engine/session_file.h"
#include "io/mapped_file.h"

namespace triptych {
namespace {

// Nothing is encoded here.
const LoadedModel::HasRows kWithoutPixels = [](const MediaItem&) { return true; };

}  // namespace

SessionModel Engine::session_model() const {
  const KvCache& cache = runner_->kv_cache();
  return {.architecture = model_.info().architecture,
          .fingerprint = model_.fingerprint(),
          .n_position_axes = model_.info().n_position_axes,
          .kv = cache.geometry(),
          .page_bytes = cache.page_bytes()};
}

std::int64_t Engine::save_session(const std::filesystem::path& path, const ChatRequest& conversation) {
  ChatRequest whole = conversation;
  whole.add_generation_prompt = false;
  PreparedRequest request;
  if (!whole.messages.empty()) request = model_.prepare(whole, kWithoutPixels);
  SessionContent content{.model = session_model(),
                         .conversation = std::move(whole),
                         .frame_sizes = {},
                         .tokens = {},
                         .positions = {}};
  for (const MediaInput& media : content.conversation.media)
    content.frame_sizes.push_back({.width_px = media.frames.front().width_px,
                                   .height_px = media.frames.front().height_px,
                                   .n_frames = static_cast<std::int64_t>(media.frames.size())});
  PrefixCache::Match found;
  if (prefix_cache_->enabled() && !request.layout.input_ids.empty()) {
    Sequence s;
    s.set_prompt(request.layout, model_.info().n_position_axes);
    s.append(
        -1, model_.info().n_position_axes);  // what comes next: so that of the conversation all is looked for
    PrefixChain chain = prefix_chain(s, request);
    found = prefix_cache_->find(chain, s.prefix_tokens());
    const PrefixTokens kept = s.prefix_tokens().first(found.n_tokens);
    content.tokens.assign(kept.tokens.begin(), kept.tokens.end());
    content.positions.assign(kept.positions.begin(), kept.positions.end());
  }
  const KvCache& cache = runner_->kv_cache();
  write_session(path, content, [&](std::size_t page, std::span<std::byte> to) {
    const std::int64_t n_before = static_cast<std::int64_t>(page) * kBlockTokens;
    const std::int64_t n_rows = std::min<std::int64_t>(found.n_tokens - n_before, kBlockTokens);
    cache.read_page(found.blocks[page], static_cast<int>(n_rows), to);
  });
  return found.n_tokens;
}

ChatRequest Engine::load_session(const std::filesystem::path& path, std::int64_t* n_restored_tokens) {
  const auto file = MappedFile::open(path);
  const std::string source = path.string();
  const SessionView session = parse_session(file->bytes(), source);
  const SessionContent& content = session.content;
  content.model.check_same(session_model(), source);
  const auto n_tokens = static_cast<std::int64_t>(content.tokens.size());
  if (n_tokens >= options_.max_context_tokens)
    fail(ErrorCode::kContextLength, "{}: a session of {} tokens, and the context holds {}", source, n_tokens,
         options_.max_context_tokens);
  ChatRequest conversation = session.conversation();
  conversation.add_generation_prompt = false;
  std::int64_t n_restored = 0;
  if (!conversation.messages.empty()) {
    const PreparedRequest request = model_.prepare(conversation, kWithoutPixels);
    Sequence s;
    s.set_prompt(request.layout, model_.info().n_position_axes);
    const bool fits = n_tokens <= s.n_prompt;
    if (!fits || !std::equal(content.tokens.begin(), content.tokens.end(), s.tokens.begin()) ||
        !std::equal(content.positions.begin(), content.positions.end(), s.positions.begin()))
      fail(ErrorCode::kInvalidFile,
           "{}: this model makes other tokens of the conversation (its tokenizer or "
           "chat template was changed)",
           source);
    if (prefix_cache_->enabled() && n_tokens > 0)
      n_restored = restore_pages(s, request, n_tokens, session.pages);
  } else if (n_tokens > 0) {
    fail(ErrorCode::kInvalidFile, "{}: {} tokens without a message", source, n_tokens);
  }
  if (n_restored_tokens != nullptr) *n_restored_tokens = n_restored;
  conversation.add_generation_prompt = true;
  return conversation;
}

// The first n_tokens of `s` get the pages of a file, for the prefix cache. Gives those that found room.
std::int64_t Engine::restore_pages(Sequence& s, const PreparedRequest& request, std::int64_t n_tokens,
                                   std::span<const std::byte> pages) {
  KvCache& cache = runner_->kv_cache();
  PrefixChain chain = prefix_chain(s, request);
  const std::size_t page_bytes = cache.page_bytes();
  std::vector<std::int32_t> blocks;
  std::int64_t n_restored = 0;
  try {
    while (n_restored < n_tokens) {
      const std::size_t i = blocks.size();
      blocks.reserve(i + 1);
      blocks.push_back(allocate_block());
      cache.write_page(blocks[i], pages.subspan(i * page_bytes, page_bytes));
      n_restored = std::min(n_tokens, n_restored + kBlockTokens);
      const PrefixTokens own = s.prefix_tokens().first(n_restored);
      if (n_restored % kBlockTokens == 0) {
        blocks[i] = prefix_cache_->publish(chain, own, n_tokens, i, blocks[i]).block;
      } else {
        prefix_cache_->publish_rest(chain, own, n_tokens, blocks[i]);
      }
    }
  } catch (const Error& error) {
    pool_->release(blocks);
    if (error.code() != ErrorCode::kOutOfMemory) throw;
    return n_restored;
  }
  pool_->release(blocks);
  return n_restored;
}

}  // namespace triptych
