// Redirects TLS connections for the hosts in REDIRECTED_HOSTS to a port of this machine. Two libraries have a fixed
// address, and one accepts only a host name. `node --require` loads this file.
const tls = require("node:tls");

const hosts = (process.env.REDIRECTED_HOSTS ?? "").split(",");
const connect = tls.connect;

tls.connect = (...given) => {
  const [options, ...rest] = given;
  const host = options?.servername || options?.host || options?.hostname;
  if (typeof options !== "object" || !hosts.includes(host)) return connect(...given);
  const led = { ...options, host: "127.0.0.1", port: Number(process.env.REDIRECTED_PORT), servername: host };
  return connect(led, ...rest);
};
