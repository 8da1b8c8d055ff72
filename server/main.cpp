#include <psring/cli/cluster/role_main.h>

int main(int argc, char** argv) {
  const psring::App app;
  return psring::cli::role_main(app, psring::net::Role::server, argc, argv);
}
