// The curves of a report are inside it.
"use strict";

curves.data = JSON.parse(byId("data").textContent);
drawCurves();
