// Helpers of the rules in diagnose*.cpp. Private to this folder.
#pragma once

#include "doctor/diagnose.h"

namespace trigen::doctor {

struct Judge {
  const Environment& environment;
  const Question& question;
  const std::vector<const Target*> targets;
  Diagnosis& diagnosis;

  void add(Severity severity, std::string id, std::string about, std::string what, std::string why,
           std::string type) {
    diagnosis.findings.push_back(
        {severity, std::move(id), std::move(about), std::move(what), std::move(why), std::move(type)});
  }
  // CUDA that the driver serves: 0 when there is none, or where any will do.
  int driver_cuda() const {
    const DriverFinding& driver = environment.driver;
    return driver.state == DriverState::kReady && !driver.emulated ? driver.cuda_version : 0;
  }
};

std::string cuda_text(int version);                            // 12040 -> "12.4"
std::string arch_of(const DeviceInfo& device);                 // "sm_70"
bool at_least(const std::string& have, int major, int minor);  // "2.36" >= 2.28

// Rules, by what they look at.
void judge_driver(Judge& judge);
void judge_devices(Judge& judge);
void judge_compilers(Judge& judge);
void judge_torch(Judge& judge);
void judge_caches(Judge& judge);
void judge_problems(Judge& judge);
void judge_surroundings(Judge& judge);  // toolkits, glibc, variables

}  // namespace trigen::doctor
