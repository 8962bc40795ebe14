visit_count = (visit_count or 0) + 1
log("Session visit: " .. visit_count)
