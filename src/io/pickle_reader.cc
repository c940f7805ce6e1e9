#include "io/pickle_reader.h"

#include <cstring>
#include <unordered_map>
#include <utility>

#include "base/error.h"
#include "io/untrusted_text.h"

namespace triptych {
namespace {

using Kind = PickleNode::Kind;
constexpr std::uint32_t kMark = 0xffffffff;   // on the stack only
constexpr std::size_t kMaxNodes = 1'000'000;  // about 100 MB; real state dicts have some tens of thousands

class PickleReader {
 public:
  PickleReader(std::span<const std::byte> bytes, std::string_view source,
               bool (*is_allowed)(std::string_view))
      : bytes_(bytes), source_(source), is_allowed_(is_allowed) {}

  Pickle read() {
    while (!is_stopped_) step(get<std::uint8_t>());
    if (stack_.size() != 1 || stack_.back() == kMark) broken("the stack at the end");
    out_.root = stack_.back();
    return std::move(out_);
  }

 private:
  [[noreturn]] void broken(const char* what) const {
    fail(ErrorCode::kInvalidFile, "{}: broken pickle: {} at byte {} of {}", source_, what, at_,
         bytes_.size());
  }

  template <typename T>
  T get() {
    if (sizeof(T) > bytes_.size() - at_) broken("cut short");
    T value;
    std::memcpy(&value, bytes_.data() + at_, sizeof(T));
    at_ += sizeof(T);
    return value;
  }

  std::string_view take(std::uint64_t n) {
    if (n > bytes_.size() - at_) broken("cut short");
    const std::string_view out(reinterpret_cast<const char*>(bytes_.data()) + at_,
                               static_cast<std::size_t>(n));
    at_ += static_cast<std::size_t>(n);
    return out;
  }

  std::string_view take_line() {
    const std::string_view rest(reinterpret_cast<const char*>(bytes_.data()) + at_, bytes_.size() - at_);
    const auto end = rest.find('\n');
    if (end == std::string_view::npos) broken("a line without an end");
    at_ += end + 1;
    return rest.substr(0, end);
  }

  PickleNode& push(Kind kind) {
    if (out_.nodes.size() >= kMaxNodes) broken("too many values");
    stack_.push_back(static_cast<std::uint32_t>(out_.nodes.size()));
    PickleNode& node = out_.nodes.emplace_back();
    node.kind = kind;
    return node;
  }
  void push_int(Kind kind, std::int64_t number) { push(kind).number = number; }
  void push_text(std::string_view text) {
    if (!is_utf8(text)) broken("text that is not UTF-8");
    push(Kind::kText).text = text;
  }

  std::uint32_t top() const {
    if (stack_.empty() || stack_.back() == kMark) broken("an empty stack");
    return stack_.back();
  }
  std::uint32_t pop() {
    const std::uint32_t out = top();
    stack_.pop_back();
    return out;
  }
  std::vector<std::uint32_t> pop_to_mark() {
    std::size_t begin = stack_.size();
    while (begin > 0 && stack_[begin - 1] != kMark) --begin;
    if (begin == 0) broken("no mark");
    std::vector<std::uint32_t> out(stack_.begin() + static_cast<std::ptrdiff_t>(begin), stack_.end());
    stack_.resize(begin - 1);
    return out;
  }

  void push_tuple(std::size_t n) {
    std::vector<std::uint32_t> items(n);
    while (n > 0) items[--n] = pop();
    push(Kind::kTuple).items = std::move(items);
  }

  void append_to(Kind kind, const std::vector<std::uint32_t>& items) {
    PickleNode& node = out_.nodes[top()];
    // An OrderedDict is made by a call and filled like a dict.
    if (node.kind != kind && !(kind == Kind::kDict && node.kind == Kind::kCall))
      broken("items for no container");
    if (kind == Kind::kDict && items.size() % 2 != 0) broken("a key without a value");
    node.items.insert(node.items.end(), items.begin(), items.end());
  }

  void push_global(std::string_view module, std::string_view name) {
    std::string global = std::string(module) + " " + std::string(name);
    if (!is_allowed_(global))
      fail(ErrorCode::kUnsupported,
           "{}: the pickle uses the Python object {}, which is not part of a plain state dict", source_,
           show_name(std::string(module) + "." + std::string(name)));
    push(Kind::kGlobal).text = std::move(global);
  }

  void push_long(std::uint64_t n) {
    if (n > 8) broken("an integer of more than 64 bits");
    const std::string_view digits = take(n);
    std::uint64_t value =
        !digits.empty() && (static_cast<unsigned char>(digits.back()) & 0x80u) != 0 ? ~std::uint64_t{0} : 0;
    for (std::size_t i = digits.size(); i-- > 0;) value = value << 8 | static_cast<unsigned char>(digits[i]);
    push_int(Kind::kInt, static_cast<std::int64_t>(value));
  }

  void put(std::uint32_t slot) { memo_[slot] = top(); }
  void push_memo(std::uint32_t slot) {
    const auto it = memo_.find(slot);
    if (it == memo_.end()) broken("a reference to nothing");
    if (stack_.size() >= kMaxNodes) broken("too many values");
    stack_.push_back(it->second);
  }

  void step(std::uint8_t opcode) {
    switch (opcode) {
      case 0x80:  // PROTO
        if (get<std::uint8_t>() > 5) broken("an unknown protocol");
        break;
      case 0x95:
        get<std::uint64_t>();
        break;  // FRAME: a hint for buffering
      case '.':
        is_stopped_ = true;
        break;
      case '(':
        stack_.push_back(kMark);
        break;
      case 'N':
        push(Kind::kNone);
        break;
      case 0x88:
        push_int(Kind::kBool, 1);
        break;
      case 0x89:
        push_int(Kind::kBool, 0);
        break;
      case 'J':
        push_int(Kind::kInt, get<std::int32_t>());
        break;
      case 'K':
        push_int(Kind::kInt, get<std::uint8_t>());
        break;
      case 'M':
        push_int(Kind::kInt, get<std::uint16_t>());
        break;
      case 0x8a:
        push_long(get<std::uint8_t>());
        break;
      case 'G':
        take(8);
        push(Kind::kFloat);
        break;
      case 'X':
        push_text(take(get<std::uint32_t>()));
        break;
      case 0x8c:
        push_text(take(get<std::uint8_t>()));
        break;
      case 0x8d:
        push_text(take(get<std::uint64_t>()));
        break;
      case ')':
        push_tuple(0);
        break;
      case 0x85:
        push_tuple(1);
        break;
      case 0x86:
        push_tuple(2);
        break;
      case 0x87:
        push_tuple(3);
        break;
      case 't': {
        std::vector<std::uint32_t> items = pop_to_mark();
        push(Kind::kTuple).items = std::move(items);
        break;
      }
      case ']':
        push(Kind::kList);
        break;
      case 'a':
        append_one(Kind::kList, 1);
        break;
      case 'e':
        append_marked(Kind::kList);
        break;
      case '}':
        push(Kind::kDict);
        break;
      case 's':
        append_one(Kind::kDict, 2);
        break;
      case 'u':
        append_marked(Kind::kDict);
        break;
      default:
        step_object(opcode);
    }
  }

  void step_object(std::uint8_t opcode) {
    switch (opcode) {
      case 'q':
        put(get<std::uint8_t>());
        break;
      case 'r':
        put(get<std::uint32_t>());
        break;
      case 0x94:
        put(static_cast<std::uint32_t>(memo_.size()));
        break;  // MEMOIZE
      case 'h':
        push_memo(get<std::uint8_t>());
        break;
      case 'j':
        push_memo(get<std::uint32_t>());
        break;
      case 'c': {
        const std::string_view module = take_line();
        push_global(module, take_line());
        break;
      }
      case 0x93: {  // STACK_GLOBAL
        const std::uint32_t name = pop();
        const std::uint32_t module = pop();
        if (out_.nodes[name].kind != Kind::kText || out_.nodes[module].kind != Kind::kText)
          broken("a global without a name");
        push_global(std::string(out_.nodes[module].text), std::string(out_.nodes[name].text));
        break;
      }
      case 'Q': {  // BINPERSID
        const std::uint32_t id = pop();
        push(Kind::kPersistent).items = {id};
        break;
      }
      case 'R': {  // REDUCE
        const std::uint32_t arguments = pop();
        const std::uint32_t function = pop();
        if (out_.nodes[function].kind != Kind::kGlobal || out_.nodes[arguments].kind != Kind::kTuple)
          broken("a call of no function");
        push(Kind::kCall).items = {function, arguments};
        break;
      }
      case 'b':  // BUILD: attributes of an object, such as the version numbers of an OrderedDict; not needed
        pop();
        top();
        break;
      default:
        fail(ErrorCode::kUnsupported,
             "{}: the pickle uses opcode 0x{:02x} at byte {}, which a plain state dict does not need",
             source_, opcode, at_ - 1);
    }
  }

  void append_one(Kind kind, std::size_t n) {
    std::vector<std::uint32_t> items(n);
    while (n > 0) items[--n] = pop();
    append_to(kind, items);
  }
  void append_marked(Kind kind) {
    const std::vector<std::uint32_t> items = pop_to_mark();
    append_to(kind, items);
  }

  std::span<const std::byte> bytes_;
  std::string_view source_;
  bool (*is_allowed_)(std::string_view);
  std::size_t at_ = 0;
  bool is_stopped_ = false;
  Pickle out_;
  std::vector<std::uint32_t> stack_;
  std::unordered_map<std::uint32_t, std::uint32_t> memo_;
};

}  // namespace

Pickle read_pickle(std::span<const std::byte> bytes, std::string_view source,
                   bool (*is_allowed)(std::string_view)) {
  if (bytes.size() > kMaxPickle_bytes)
    fail(ErrorCode::kInvalidFile, "{}: the pickle has {} bytes, expected at most {}", source, bytes.size(),
         kMaxPickle_bytes);
  return PickleReader(bytes, source, is_allowed).read();
}

}  // namespace triptych
