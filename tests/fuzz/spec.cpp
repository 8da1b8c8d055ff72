// Texts of the command line and of the job: names with arguments, sizes, links, endpoints.
#include <psring/common/base/text/spec.h>
#include <psring/common/net/link_shaping.h>
#include <psring/common/proc/data_links.h>
#include <psring/tests/fuzz/input.h>

using namespace psring;

void psring::fuzz::run(Input in) {
  const std::size_t what = in.below(5);
  const std::string text(in.text());
  refuses(ErrorKind::usage, [&] {
    switch (what) {
      case 0: {
        const Spec spec = Spec::parse("--flag", text);
        require(!spec.name().empty(), "a name");
        for (const char* key : {"k", "layers"}) {
          refuses(ErrorKind::usage, [&] { require(spec.positive(key, 1) > 0, "a positive number"); });
          refuses(ErrorKind::usage, [&] { spec.count(key, 0); });
          refuses(ErrorKind::usage, [&] { spec.number(key, 0); });
          spec.string(key, "");
        }
        spec.allow_only({"k"});
        break;
      }
      case 1:
        require(parse_positive("--flag", text) > 0, "a positive number");
        break;
      case 2:
        parse_bytes("--flag", text);
        break;
      case 3: {
        const net::LinkSpec link = net::parse_link(text);
        require(link.bits_per_second > 0 && link.delay >= Nanoseconds(0), "a link that carries something");
        to_string(link);
        net::LinkShaper(link).time_of(1 << 20);
        break;
      }
      default:
        net::parse_way(text);
    }
  });
}
