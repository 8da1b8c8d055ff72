#include <psring/cli/app.h>

int main(int argc, char** argv) {
  psring::App app;
  return app.run(argc, argv);
}
