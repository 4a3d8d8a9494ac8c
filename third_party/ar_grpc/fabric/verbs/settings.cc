// Copyright 2026 The AR-gRPC TensorFlow authors. Licensed under the Apache License, Version 2.0.

#include "third_party/ar_grpc/fabric/verbs/settings.h"

#include <charconv>
#include <cstring>
#include <system_error>

namespace ar_grpc::fabric::verbs {
namespace {

constexpr int kSmallestMtuBytes = 256;
// A device's name in /sys/class/infiniband is shorter.
constexpr size_t kLongestName = 64;

std::string Words(const char* variable, const std::string& value, const std::string& why) {
  return std::string(variable) + "=" + value + ": " + why + "; correct it, or unset " + variable;
}

// Reads variables until one is wrong.
class Variables {
 public:
  explicit Variables(const Environment& environment) : environment_(environment) {}

  // The text; nullptr where there is none, or after a wrong one.
  const char* Text(const char* variable) {
    const char* const text = status_.ok() ? environment_(variable) : nullptr;
    if (text == nullptr || *text == '\0') return nullptr;
    given_ = true;
    return text;
  }
  bool given() const { return given_; }

  template <typename Number>
  void Take(const char* variable, int least, int most, Number* into) {
    const char* const text = Text(variable);
    if (text == nullptr) return;
    int number = 0;
    const char* const end = text + std::strlen(text);
    const auto [stopped, error] = std::from_chars(text, end, number);
    if (error == std::errc() && stopped == end && number >= least && number <= most) {
      *into = static_cast<Number>(number);
      return;
    }
    Refuse(variable,
           "it takes a whole number from " + std::to_string(least) + " to " + std::to_string(most));
  }

  void Refuse(const char* variable, const std::string& why) {
    status_ = Status(StatusCode::kInvalidArgument, Words(variable, Text(variable), why));
  }
  const Status& status() const { return status_; }

 private:
  const Environment& environment_;
  Status status_;
  bool given_ = false;
};

// From bytes to the interface's number.
void TakeMtu(Variables* variables, uint8_t* into) {
  if (variables->Text(kMtuVariable) == nullptr) return;
  const std::string text = variables->Text(kMtuVariable);
  for (int mtu = abi::kSmallestMtu; mtu <= abi::kLargestMtu; ++mtu) {
    if (text == std::to_string(kSmallestMtuBytes << (mtu - abi::kSmallestMtu))) {
      *into = static_cast<uint8_t>(mtu);
      return;
    }
  }
  variables->Refuse(kMtuVariable, "it takes 256, 512, 1024, 2048 or 4096 bytes");
}

}  // namespace

StatusOr<Settings> ReadSettings(const Environment& environment) {
  Settings settings;
  Variables variables(environment);
  if (const char* const device = variables.Text(kDeviceVariable); device != nullptr) {
    settings.device = device;
    if (settings.device.size() > kLongestName || settings.device.find('/') != std::string::npos) {
      variables.Refuse(kDeviceVariable,
                       "it takes a device's name as ibv_devices shows it, such as mlx5_0");
    }
  }
  variables.Take(kPortVariable, 1, UINT8_MAX, &settings.port);
  if (variables.Text(kGidIndexVariable) != nullptr) {
    variables.Take(kGidIndexVariable, 0, UINT8_MAX, &settings.gid_index.emplace());
  }
  variables.Take(kPkeyIndexVariable, 0, UINT16_MAX, &settings.pkey_index);
  variables.Take(kQueueDepthVariable, 1, 16384, &settings.queue_depth);
  variables.Take(kTimeoutVariable, 0, 31, &settings.timeout);
  variables.Take(kRetriesVariable, 0, 7, &settings.retries);
  variables.Take(kServiceLevelVariable, 0, 15, &settings.service_level);
  TakeMtu(&variables, &settings.largest_mtu);
  variables.Take(kTrafficClassVariable, 0, UINT8_MAX, &settings.traffic_class);
  if (!variables.status().ok()) return variables.status();
  settings.given = variables.given();
  return settings;
}

Status WrongSetting(const char* variable, const std::string& value, const std::string& why) {
  return Status(StatusCode::kUnavailable, Words(variable, value, why));
}

}  // namespace ar_grpc::fabric::verbs
