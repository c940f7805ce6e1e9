// A borrowed callable: two pointers, no allocation. The callable must outlive the call, so it is for
// parameters only (compare std::function_ref of C++26, P0792).
#pragma once

#include <memory>
#include <type_traits>
#include <utility>

namespace triptych {

template <typename Signature>
class FunctionRef;

template <typename R, typename... Args>
class FunctionRef<R(Args...)> {
 public:
  template <typename F>
  requires(!std::is_same_v<std::remove_cvref_t<F>, FunctionRef> && std::is_invocable_r_v<R, F&, Args...>)
      FunctionRef(F&& f)
  noexcept {  // NOLINT: implicit on purpose, lambdas are passed directly
    if constexpr (std::is_function_v<std::remove_pointer_t<std::remove_cvref_t<F>>>) {
      using Pointer = std::decay_t<F>;
      object_.function = reinterpret_cast<void (*)()>(static_cast<Pointer>(f));
      call_ = [](Object o, Args... args) -> R {
        return reinterpret_cast<Pointer>(o.function)(std::forward<Args>(args)...);
      };
    } else {
      object_.object = const_cast<void*>(static_cast<const void*>(std::addressof(f)));
      call_ = [](Object o, Args... args) -> R {
        return (*static_cast<std::remove_reference_t<F>*>(o.object))(std::forward<Args>(args)...);
      };
    }
  }

  R operator()(Args... args) const { return call_(object_, std::forward<Args>(args)...); }

 private:
  union Object {
    void* object;
    void (*function)();
  };
  Object object_{};
  R (*call_)(Object, Args...);
};

}  // namespace triptych
