-- Good pattern: {resource_type}:{operation}:{identifier}
state.set("package:installed:nginx", "true")
state.set("config:hash:/etc/nginx/nginx.conf", checksum)
state.set("deployment:version:app", "v1.2.3")
