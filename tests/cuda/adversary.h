#pragma once
/// \file
/// How GPUs of a test run: on the host in every order that CUDA allows, or as they are.

#include <cstddef>
#include <string>

namespace zero::test {

/// Ways of running: on the host schedules of streams and orders of threads, on a GPU one.
std::size_t adversaries();
/// Chooses one, by `number` modulo adversaries(); its name.
std::string choose_adversary(std::size_t number);

/// In which order a grid's blocks run, and a block's threads between two barriers: on the host. A GPU has an order of
/// its own, another one in every run: what is repeated for each of these is repeated there.
enum class Order { forward, reverse, shuffled };
inline constexpr Order kOrders[] = {Order::forward, Order::reverse, Order::shuffled};
void set_order(Order order);
/// For messages.
const char* name(Order order);

/// Says how many GPUs each process sees. False where that is not ours to say.
bool pretend_gpus(int count);

}  // namespace zero::test
